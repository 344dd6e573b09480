"""Files that a worker process leaves for its successor."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from pawl import errors


class WorkerFolder:
    """The folder that the environment's PAWL_WORKER_DIR names; used by one process at a time."""

    def __init__(self, path: str):
        self._path = path
        os.makedirs(path, exist_ok=True)

    @staticmethod
    def from_environment() -> Optional["WorkerFolder"]:
        """None: this process has no supervisor that restarts it."""
        path = os.environ.get("PAWL_WORKER_DIR")
        return WorkerFolder(path) if path else None

    def previous_node(self) -> tuple[str, int, int]:
        """The node and job of the previous process, and how many processes have had the folder.

        Counts this process too.
        """
        node, job_id, start_count = self._read_node()
        # Before this process registers, so that a count is used only once.
        self.write_node(node, job_id, start_count + 1)
        return node, job_id, start_count + 1

    def write_node(self, node: str, job_id: int, start_count: int) -> None:
        """The node that this process is."""
        self._write("node.json", {"node": node, "job_id": job_id, "start_count": start_count})

    def is_repeated(self, rank: int, step: int, exception: str) -> bool:
        """Whether the previous process has ended in the same way. Notes it for the next one."""
        start_count = self._read_node()[2]
        now = {"rank": rank, "step": step, "exception": exception}
        try:
            with open(os.path.join(self._path, "exception.json"), encoding="utf-8") as file:
                before = json.load(file)
        except (OSError, ValueError):
            before = None
        self._write("exception.json", {**now, "start_count": start_count})
        return before == {**now, "start_count": start_count - 1}

    def _read_node(self) -> tuple[str, int, int]:
        """The node, job and start count that were written last."""
        path = os.path.join(self._path, "node.json")
        try:
            with open(path, encoding="utf-8") as file:
                node = json.load(file)
            return str(node["node"]), int(node["job_id"]), int(node["start_count"])
        except FileNotFoundError:
            return "", 0, 0
        except (ValueError, KeyError, TypeError) as error:
            raise errors.InvalidArgumentError(
                "%s is damaged (%s): remove it" % (path, error)
            ) from error

    def _write(self, name: str, content: dict[str, Any]) -> None:
        path = os.path.join(self._path, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(path + ".new", path)
