"""The state that a program keeps beside the tables, saved for each rank with its steps.

The bytes travel as rows of a table of the job: replicated, logged and in every checkpoint, at the
same step as the parameters. Each float of a row holds three bytes as a whole number, which float32
represents exactly.
"""

from __future__ import annotations

import json
import sys
import zlib
from typing import Any, Iterable, Optional, Protocol, Sequence

import numpy as np

from pawl import errors, specs
from pawl.client import Client
from pawl.futures import Future
from pawl.items import Item, pull_item, push_item
from pawl.session import Session
from pawl.table import Table

# The most that one rank may keep.
LIMIT_BYTES = 64 * 2**20
_FLOATS = 1024
_ROW_BYTES = 3 * _FLOATS
_SPEC = specs.sparse_spec("pawl/state", _FLOATS, specs.Replace(), specs.Constant(0.0))
# The first row of an area: length, step (0 in SYNC mode) and CRC-32 of the bytes as little-endian
# uint64.
_HEADER = np.dtype([("length", "<u8"), ("step", "<u8"), ("crc", "<u8")])


class Stateful(Protocol):
    """An object of torch's kind that can be saved."""

    def state_dict(self) -> Any:
        """Nested dicts, lists and tuples of tensors, arrays, numbers, text, bytes and None."""

    def load_state_dict(self, state: Any) -> Any:
        """Takes over what state_dict has returned."""


def encode(tree: Any) -> bytes:
    """Equal trees give equal bytes. Raises InvalidArgumentError for other types, by their path.

    Layout: the length of the JSON as little-endian uint64, JSON, then the arrays one by one.
    """
    arrays = _Arrays()
    text = json.dumps(_describe(tree, "state", arrays), separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(8, "little"), text] + arrays.parts)


def decode(data: bytes) -> Any:
    """The tree that was encoded; torch's tensors stay tensors.

    Raises DataLossError for bytes that encode has not made: they come from servers.
    """
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        return _restore(json.loads(data[8:end]), memoryview(data)[end:])
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, RecursionError) as error:
        raise errors.DataLossError("a saved state cannot be read: %s" % error) from error


class _Arrays:
    """The arrays that encode writes after the JSON."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> list[int]:
        """[offset, length]."""
        self.parts.append(data)
        self._size += len(data)
        return [self._size - len(data), len(data)]


def _describe(value: Any, path: str, arrays: _Arrays) -> Any:
    """JSON: what JSON can express as it is, anything else as [kind, ...]."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return ["bytes"] + arrays.add(bytes(value))
    if isinstance(value, dict):
        return [
            "dict",
            [
                [_describe(key, path, arrays), _describe(part, "%s[%r]" % (path, key), arrays)]
                for key, part in value.items()
            ],
        ]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [
            kind,
            [_describe(part, "%s[%d]" % (path, i), arrays) for i, part in enumerate(value)],
        ]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        name = str(value.dtype).rsplit(".", maxsplit=1)[-1]
        return ["tensor"] + arrays.add(flat) + [name, list(value.shape)]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        flat = np.ascontiguousarray(value).tobytes()
        return ["array"] + arrays.add(flat) + [value.dtype.str, list(value.shape)]
    raise errors.InvalidArgumentError(
        "%s is a %s; Job.keep saves tensors, arrays, numbers, text, bytes, and dicts, lists and "
        "tuples of them" % (path, type(value).__name__)
    )


def _restore(value: Any, arrays: memoryview) -> Any:
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "dict":
        return {_restore(key, arrays): _restore(part, arrays) for key, part in value[1]}
    if kind == "list":
        return [_restore(part, arrays) for part in value[1]]
    if kind == "tuple":
        return tuple(_restore(part, arrays) for part in value[1])
    data = bytearray(arrays[value[1] : value[1] + value[2]])
    if kind == "bytes":
        return bytes(data)
    if kind == "array":
        return np.frombuffer(data, value[3]).reshape(value[4])
    import torch  # pylint: disable=import-outside-toplevel  # only where a tensor was saved

    # An empty buffer is refused.
    flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    dtype = getattr(torch, value[3], None)
    if kind != "tensor" or not isinstance(dtype, torch.dtype):
        raise ValueError("there is no %s of %r" % (kind, value[3]))
    return flat.view(dtype).reshape(value[4])


def _to_rows(data: bytes) -> np.ndarray:
    """The bytes as rows of whole numbers below 2**24; the last one is filled up with zeros."""
    count = -(-len(data) // _ROW_BYTES)
    padded = np.zeros(count * _ROW_BYTES, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    parts = padded.reshape(count, _FLOATS, 3).astype(np.uint32)
    numbers = parts[..., 0] | parts[..., 1] << np.uint32(8) | parts[..., 2] << np.uint32(16)
    return numbers.astype(np.float32)


def _to_bytes(rows: np.ndarray) -> bytes:
    numbers = rows.astype(np.uint32)
    return np.stack([numbers >> np.uint32(8 * i) & np.uint32(255) for i in range(3)], -1).astype(
        np.uint8
    ).tobytes()


class _Saved:
    """A rank's state as the servers have it, or None where this process does not know."""

    def __init__(self, areas: int):
        self.data: Optional[bytes] = None
        # Whether this process has pushed a whole state.
        self.is_certain = False
        self.area = 0
        self.rows: list[Optional[np.ndarray]] = [None] * areas


class StateTable:
    """The states of all ranks.

    In SYNC mode a rank's state becomes visible as a whole, when its step closes. In the other modes
    pushes apply on arrival and may stop half-way, so that a rank writes to two areas in turn, and
    the reader takes the newest one that is whole.

    Args:
      client: the process's.
      mode: the job's.
      may_have_holes: whether servers drop some pushes (backup workers). An incomplete state then
        counts as missing.
    """

    def __init__(self, client: Client, mode: str, may_have_holes: bool = False):
        self.table: Table = client.create(_SPEC).wait()
        self._may_have_holes = may_have_holes
        self._areas = 1 if mode == "SYNC" else 2
        self._saved: dict[int, _Saved] = {}

    def items(self, rank: int, step: int, data: bytes) -> list[Item]:
        """Returns the push of the step that ends, so that the rank begins `step` with the data.

        Only rows that have changed. Raises ResourceExhaustedError for more than LIMIT_BYTES.
        """
        saved = self._saved.setdefault(rank, _Saved(self._areas))
        # Data that was only read is pushed: a predecessor that hosted the rank for one step pushed
        # all rows in this one, changed or not, and a SYNC step ends with no fewer than it pushed.
        if saved.is_certain and data == saved.data:
            return []
        if len(data) > LIMIT_BYTES:
            raise errors.ResourceExhaustedError(
                "what Job.keep saves for rank %d has %d bytes; at most %d"
                % (rank, len(data), LIMIT_BYTES)
            )
        # A SYNC state has one area, and its rows do not tell how often it was pushed.
        header = np.array((len(data), step * (self._areas > 1), zlib.crc32(data)), _HEADER)
        rows = np.concatenate([_to_rows(header.tobytes()), _to_rows(data)])
        area = (saved.area + 1) % self._areas
        old = saved.rows[area]
        changed = np.ones(len(rows), bool)
        if old is not None:
            common = min(len(old), len(rows))
            changed[:common] = (old[:common] != rows[:common]).any(1)
        saved.area = area
        if saved.is_certain:
            saved.data, saved.rows[area] = data, rows
        else:
            # A predecessor may have pushed another state for this step, and the servers keep the
            # rows that came first. The next push has all rows again.
            saved.data, saved.is_certain = None, True
        places = np.flatnonzero(changed)
        keys = _keys(rank, area, places)
        return [push_item(self.table, keys, rows[places], distinct=True)]

    def forget(self, rank: int) -> None:
        """Another process writes the rank's state from now on."""
        self._saved.pop(rank, None)

    def start_read(self, session: Session, rank: int, timeout: float) -> Future[np.ndarray]:
        """Fetches the headers of a rank's areas; see finish_read."""
        headers = np.empty((self._areas, _FLOATS), np.float32)
        keys = np.concatenate([_keys(rank, area, [0]) for area in range(self._areas)])
        item = pull_item(self.table, keys, out=headers, distinct=True)
        return session.pull([item], timeout=timeout, result=headers)

    def finish_read(
        self, session: Session, rank: int, step: int, headers: np.ndarray
    ) -> Optional[bytes]:
        """The state with which the rank begins the step; None: it has none.

        Raises DataLossError if there was one and none is whole.
        """
        saved = self._saved[rank] = _Saved(self._areas)
        found = []
        for area in range(self._areas):
            header = np.frombuffer(_to_bytes(headers[area : area + 1]), _HEADER, 1)[0]
            if header["length"] > 0 and header["step"] <= step:
                found.append((int(header["step"]), area, header))
        for _, area, header in sorted(found, reverse=True, key=lambda entry: entry[0]):
            length = min(int(header["length"]), LIMIT_BYTES)
            places = 1 + np.arange(-(-length // _ROW_BYTES))
            item = pull_item(self.table, _keys(rank, area, places), distinct=True)
            session.pull([item]).wait()
            data = _to_bytes(item.values)[:length]
            if zlib.crc32(data) == header["crc"]:
                saved.data, saved.area = data, area
                return data
        if found and not self._may_have_holes:
            raise errors.DataLossError(
                "the state of rank %d in table %r is damaged" % (rank, self.table.name)
            )
        return None


def _keys(rank: int, area: int, places: Any) -> np.ndarray:
    """Returns the keys of an area's rows: 32 bits of rank, 1 of area, 31 of place."""
    first = np.uint64(rank) << np.uint64(32) | np.uint64(area) << np.uint64(31)
    return first + np.asarray(places, np.uint64)


class Kept:
    """The objects of a program whose state is saved, one set of objects for all ranks."""

    def __init__(self) -> None:
        self._objects: dict[str, Stateful] = {}

    def __bool__(self) -> bool:
        return bool(self._objects)

    def add(self, objects: Iterable[tuple[str, Stateful]]) -> None:
        """Raises InvalidArgumentError for what cannot be saved, and for a name that exists."""
        for name, kept in objects:
            if not hasattr(kept, "state_dict") or not hasattr(kept, "load_state_dict"):
                raise errors.InvalidArgumentError(
                    "Job.keep(%s=...): a %s has no state_dict and load_state_dict"
                    % (name, type(kept).__name__)
                )
            if name in self._objects:
                raise errors.InvalidArgumentError("Job.keep(%s=...): kept already" % name)
            self._objects[name] = kept

    def check_schedulers(self, schedulers: Sequence[Any]) -> None:
        """Raises InvalidArgumentError for a scheduler of Job.steps(schedulers=...) that is kept.

        Each process steps it from the job's first step on, also one that is restarted: a state that
        is loaded there would be stepped a second time.
        """
        for name, kept in self._objects.items():
            if any(kept is scheduler for scheduler in schedulers):
                raise errors.InvalidArgumentError(
                    "Job.keep(%s=...): job.steps(schedulers=[...]) has this %s too, and steps it "
                    "itself, also after a restart; leave it out of Job.keep"
                    % (name, type(kept).__name__)
                )

    def save(self) -> dict[str, Any]:
        """{name: state} of all objects."""
        return {name: kept.state_dict() for name, kept in self._objects.items()}

    def load(self, states: dict[str, Any]) -> None:
        """Raises FailedPreconditionError unless the states are of these objects."""
        if sorted(states) != sorted(self._objects):
            raise errors.FailedPreconditionError(
                "the job was trained with Job.keep of [%s], this program keeps [%s]"
                % (", ".join(sorted(states)), ", ".join(sorted(self._objects)))
            )
        for name, state in states.items():
            self._objects[name].load_state_dict(state)


def check_same(recorded: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises FailedPreconditionError that names what differs from the job's first steps."""
    differing = [
        "%s was %r, is %r" % (name, recorded.get(name), now.get(name))
        for name in sorted(set(recorded) | set(now))
        if recorded.get(name) != now.get(name)
    ]
    if differing:
        raise errors.FailedPreconditionError(
            "this program continues a job with other settings, whose steps it cannot repeat: %s"
            % "; ".join(differing)
        )
