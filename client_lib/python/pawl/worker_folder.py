"""Files that a worker process leaves for its successor."""

from __future__ import annotations

import json
import logging
import os
from typing import Any, Optional

_log = logging.getLogger("pawl")


class WorkerFolder:
    """The folder that the environment's PAWL_WORKER_DIR names; used by one process at a time.

    A file that cannot be read or written is a warning: the successor does without it.
    """

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

        Counts this process too. Without a predecessor: "", 0, 1.
        """
        node, job_id, start_count = self._read_node()
        # Before this process registers, so that a count is used only once.
        if not self.write_node(node, job_id, start_count + 1):
            return "", 0, 1
        return node, job_id, start_count + 1

    def write_node(self, node: str, job_id: int, start_count: int) -> bool:
        """The node that this process is. Returns whether it was written."""
        return self._write(
            "node.json", {"node": node, "job_id": job_id, "start_count": start_count}
        )

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
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("this worker joins as a new one: %s cannot be read: %r", path, error)
            return "", 0, 0

    def _write(self, name: str, content: dict[str, Any]) -> bool:
        path = os.path.join(self._path, name)
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".new", path)
        except OSError as error:
            _log.warning(
                "%s cannot be written, and a restarted worker does without it: %s", path, error
            )
            return False
        return True
