"""What `pawlctl status` shows."""

from __future__ import annotations

import html


class Status(dict):
    """The state of a job (pawl.GetStatusResponse as a dictionary)."""

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("job", self.get("job", {}).get("name", "")),
            ("state", self.get("state", "")),
            ("steps", "%s" % self.get("steps", 0)),
        ]
        if self.get("failure"):
            rows.append(("failure", self["failure"]))
        for node in self.get("nodes", []):
            ranks = node.get("logical_workers", [])
            rows.append(
                (
                    node.get("node", ""),
                    ("gone" if node.get("gone") else node.get("address") or "present")
                    + (", ranks %s" % ", ".join(map(str, ranks)) if ranks else ""),
                )
            )
        return rows

    def __str__(self) -> str:
        return "\n".join("%-12s  %s" % row for row in self._rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr><th>%s</th><td>%s</td></tr>" % (html.escape(name), html.escape(value))
            for name, value in self._rows()
        )
        return "<table>%s</table>" % cells
