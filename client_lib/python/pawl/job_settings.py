"""A job's settings as Python objects."""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
from typing import Any, Mapping, Optional

import numpy as np

from pawl import errors

# Names a file: pawl.init writes the settings to it instead of joining a job, for `pawl run`.
SETTINGS_FILE_VARIABLE = "PAWL_JOB_SETTINGS_FILE"


def _at(path: str) -> Any:
    return dataclasses.field(default=None, metadata={"path": path})


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """The job that pawl.init(job=...) asks for. None: any value; a new job gets the default.

    Args:
      name: the job's.
      seed: of initial values.
      mode: SYNC, BOUNDED or ASYNC.
      staleness: how many steps a rank may be ahead; BOUNDED only.
      backup_workers: the number of ranks that may miss a step; SYNC only.
      logical_workers: the number of ranks.
      partitions: of the tables; at least the number of servers.
      replicas: servers that have each partition.
      durability: MEMORY, LOG or FSYNC.
      elastic: whether ranks move to workers that join.
      others: further fields of proto/job.proto by path, such as {"clip_global_norm": 1.0}.
    """

    name: Optional[str] = _at("name")
    seed: Optional[int] = _at("seed")
    mode: Optional[str] = _at("consistency.mode")
    staleness: Optional[int] = _at("consistency.staleness")
    backup_workers: Optional[int] = _at("consistency.backup_workers")
    logical_workers: Optional[int] = _at("logical_workers")
    partitions: Optional[int] = _at("partitions")
    replicas: Optional[int] = _at("replicas")
    durability: Optional[str] = _at("durability")
    elastic: Optional[bool] = _at("elastic")
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def by_path(self) -> dict[str, Any]:
        """The values that are set, by their path in proto/job.proto."""
        named = {
            field.metadata["path"]: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if "path" in field.metadata and getattr(self, field.name) is not None
        }
        twice = sorted(set(named) & set(self.others))
        if twice:
            raise errors.InvalidArgumentError("JobSettings has %s twice" % ", ".join(twice))
        return {**named, **self.others}

    def flags(self) -> list[str]:
        """The values as flags of `pawlctl run`."""
        return ["--set=%s=%s" % (path, _text(value)) for path, value in self.by_path().items()]

    def check(self, job: Mapping[str, Any]) -> None:
        """Raises FailedPreconditionError, which names the fields, if a job has other values."""
        differing = []
        for path, wanted in self.by_path().items():
            value: Any = job
            for name in path.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            # The description leaves out what is 0, false or empty.
            if (value is not None or wanted) and not _is_same(path, value, wanted):
                differing.append("%s is %s, not %s" % (path, _text(value) or "not set", wanted))
        if differing:
            raise errors.FailedPreconditionError(
                "the job that runs has other settings than this program: %s; start the job with "
                "`pawl run`, or with %s" % ("; ".join(differing), " ".join(self.flags()))
            )

    def write_if_asked(self) -> None:
        """Ends the program if `pawl run` has started it only to learn its settings."""
        path = os.environ.get(SETTINGS_FILE_VARIABLE)
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.flags(), file)
            raise SystemExit(0)


def _is_same(path: str, value: Any, wanted: Any) -> bool:
    """Whether a job's description has the wanted value, which it may write in another way."""
    if _text(value) == _text(wanted):
        return True
    if path == "checkpoint.dir" and value and wanted:
        return os.path.abspath(value) == os.path.abspath(wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, numbers.Real):
        return False
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # A job's fractions have 32 bits.
    return bool(np.float32(value) == np.float32(wanted))


def _text(value: Any) -> str:
    """As a flag has it. JSON has 64-bit integers as text."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
