"""Rows of tables as leaf tensors of autograd.

A lookup pulls the distinct rows of a batch into one tensor that requires a gradient. pooling.py, or
torch, then gathers from it, and sums the gradients of repeated keys into it; the optimizer pushes
its .grad. So gradient accumulation, several lookups of a table, retain_graph and clipping work as
they do for any leaf.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence

import numpy as np
import torch

from pawl import errors, job as job_module, specs
from pawl.client import Client
from pawl.futures import Future
from pawl.items import CallPart, DistinctRows, assign_item, keys_of, push_item
from pawl.session import Session
from pawl.table import Table

_log = logging.getLogger("pawl")


# Rows that are assigned in one call.
_ROWS_IN_CALL = 1 << 16


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


@dataclasses.dataclass
class InitialRows:
    """Rows that a table has before training begins. `keys`: uint64, distinct."""

    keys: np.ndarray
    rows: np.ndarray
    slots: Optional[np.ndarray] = None

    @staticmethod
    def of(table: str, dim: int, keys: Any, rows: Any, slots: Any = None) -> "InitialRows":
        """Converts tensors or arrays. Raises InvalidArgumentError if they do not fit."""
        flat = keys_of(_array(keys) if isinstance(keys, torch.Tensor) else keys)
        values = np.ascontiguousarray(_array(rows), np.float32)
        if values.shape != (flat.size, dim):
            raise errors.InvalidArgumentError(
                "the rows of table %r have the shape %s; its %d keys need %s"
                % (table, values.shape, flat.size, (flat.size, dim))
            )
        if np.unique(flat).size != flat.size:
            raise errors.InvalidArgumentError("a key of table %r is given twice" % table)
        states = None if slots is None else np.ascontiguousarray(_array(slots), np.float32)
        if states is not None and len(states) != flat.size:
            raise errors.InvalidArgumentError(
                "table %r has slots of %d rows and keys of %d" % (table, len(states), flat.size)
            )
        return InitialRows(flat, values, states if states is not None and states.size else None)


class TableHandle:
    """A table that a module declares; it is created on the servers when first needed."""

    def __init__(
        self, name: str, dim: int, optimizer: specs.Optimizer, init: specs.Initializer
    ):
        self.name = name
        self.dim = dim
        self.optimizer = optimizer
        self.spec = specs.sparse_spec(name, dim, optimizer, init)
        # Until they are assigned, or have turned out to be too late.
        self.initial: Optional[InitialRows] = None
        self._client: Optional[Client] = None
        self._table: Optional[Table] = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy finds the table again.
        return {**self.__dict__, "_client": None, "_table": None}

    def table(self, client: Client) -> Table:
        """The table on the client's servers."""
        if self._table is None or self._client is not client:
            self._table, self._client = client.create(self.spec).wait(), client
        return self._table

    def assign_initial(self, client: Client, session: Session) -> None:
        """Sets the initial rows, if there are any, in the order in which they were given."""
        given = self.initial
        if given is None:
            return
        table = self.table(client)
        for begin in range(0, given.keys.size, _ROWS_IN_CALL):
            some = slice(begin, begin + _ROWS_IN_CALL)
            slots = None if given.slots is None else given.slots[some]
            item = assign_item(table, given.keys[some], given.rows[some], slots=slots)
            session.assign([item]).wait()
        self.initial = None


@dataclasses.dataclass
class Wanted:
    """The keys of one lookup in one table, int64, on the CPU. `padding`: positions of no row."""

    handle: TableHandle
    keys: np.ndarray
    padding: Optional[np.ndarray] = None


class Rows:
    """The distinct rows of tables of one width in one tensor; its last row is zero, for padding."""

    def __init__(self, dim: int, wanted: Sequence[Wanted], client: Client):
        self.dim = dim
        # The lookups of each table.
        by_table: dict[int, list[int]] = {}
        for number, want in enumerate(wanted):
            by_table.setdefault(want.handle.table(client).id, []).append(number)
        order = [number for numbers in by_table.values() for number in numbers]
        kept = [
            want.keys if want.padding is None else want.keys[~want.padding] for want in wanted
        ]
        tables = [wanted[numbers[0]].handle.table(client) for numbers in by_table.values()]
        keys = [
            kept[numbers[0]]
            if len(numbers) == 1
            else np.concatenate([kept[number] for number in numbers])
            for numbers in by_table.values()
        ]
        self.distinct = DistinctRows(client, tables, keys)
        rows = sum(self.distinct.counts)
        self._buffer = np.empty((rows + 1, dim), np.float32)
        self._buffer[rows] = 0
        self.padding_row = rows
        # The row of each key, by lookup.
        self.inverse: list[np.ndarray] = [np.empty(0, np.int64)] * len(wanted)
        begin = 0
        for number in order:
            want, count = wanted[number], kept[number].size
            places = self.distinct.places[begin : begin + count]
            begin += count
            if want.padding is not None:
                places, present = np.full(want.keys.size, rows, np.int64), places
                places[~want.padding] = present
            self.inverse[number] = places
        # The same of all lookups, if that is one array.
        self.places: Optional[np.ndarray] = None
        if order == list(range(len(wanted))) and all(want.padding is None for want in wanted):
            self.places = self.distinct.places
        # The session of the rank that has looked them up; None: no rank's.
        self.session: Optional[Session] = None
        # Its .grad is what step() pushes. None: before tensor(), and between release() and add().
        self.leaf: Optional[torch.Tensor] = None
        # Whether the leaf of tensor() has been released. `leaf` is then one that stands in for it.
        self._is_released = False

    def parts(self) -> list[CallPart]:
        """For Session.pull."""
        return [self.distinct.part(self._buffer)] if self.padding_row > 0 else []

    def tensor(self, device: torch.device, requires_grad: bool) -> torch.Tensor:
        """The rows, after they have arrived."""
        self.leaf = torch.from_numpy(self._buffer).to(device).requires_grad_(requires_grad)
        return self.leaf

    def has_gradient(self) -> bool:
        """Whether there is something to push."""
        return self.leaf is not None and self.leaf.grad is not None

    def gradient(self) -> np.ndarray:
        """The leaf's gradient as an array. REQUIRES: has_gradient()."""
        assert self.leaf is not None and self.leaf.grad is not None
        return self.leaf.grad.to("cpu", torch.float32).contiguous().numpy()

    def release(self, module: "LookupModule") -> None:
        """Drops the leaf and its gradient.

        From now on the forward's graph owns the leaf, and the leaf these rows. A gradient that a
        later backward() of the graph computes is given to the module's on_late_gradient.
        """
        leaf, self.leaf = self.leaf, None
        if leaf is None:
            return
        # What was taken is pushed later: another backward() must not add to it.
        leaf.grad = None
        if not self._is_released:
            leaf.register_hook(functools.partial(_pass_on, weakref.ref(module), self))
        self._is_released = True

    def add(self, gradient: torch.Tensor) -> None:
        """Adds a gradient that has come after release()."""
        gradient = gradient.detach()
        if self.leaf is None:
            self.leaf = torch.empty_like(gradient).requires_grad_()
        before = self.leaf.grad
        self.leaf.grad = gradient.clone() if before is None else before + gradient


def _pass_on(
    module: "weakref.ref[LookupModule]", rows: Rows, gradient: torch.Tensor
) -> None:
    """A hook of a released leaf. A graph that outlives its module trains nothing."""
    recorder = module()
    if recorder is not None:
        recorder.on_late_gradient(rows, gradient)


class Fetch:
    """Everything that one forward needs."""

    def __init__(self, wanted: Sequence[Wanted], client: Client):
        # The number of its Rows, and its place there, of each lookup.
        self._places: list[tuple[int, int]] = []
        by_dim: dict[int, list[Wanted]] = {}
        for want in wanted:
            group = by_dim.setdefault(want.handle.dim, [])
            self._places.append((list(by_dim).index(want.handle.dim), len(group)))
            group.append(want)
        self.rows = [Rows(dim, group, client) for dim, group in by_dim.items()]
        # The call that pulls the rows; None: there are none.
        self.pull: Optional[Future[Any]] = None

    def parts(self) -> list[CallPart]:
        """For Session.pull."""
        return [part for rows in self.rows for part in rows.parts()]

    def wait(
        self, device: torch.device, requires_grad: bool, job: Optional[job_module.Job]
    ) -> "Fetch":
        """Waits for the rows. `job`: that of the rank that pulls them."""
        if self.pull is not None:
            if job is not None:
                job.wait_for(self.pull)
            else:
                self.pull.wait()
        for rows in self.rows:
            rows.tensor(device, requires_grad)
        return self

    def of(self, lookup: int) -> tuple[Rows, np.ndarray]:
        """The tensor of a lookup, by its place in `wanted`, and the row of each of its keys."""
        group, place = self._places[lookup]
        return self.rows[group], self.rows[group].inverse[place]


def device_of(keys: torch.Tensor) -> torch.device:
    """Where the keys are. Raises InvalidArgumentError if they are no tensor."""
    if not isinstance(keys, torch.Tensor):
        raise errors.InvalidArgumentError(
            "keys are a %s; they must be a torch.Tensor of int64 or int32" % type(keys).__name__
        )
    return keys.device


def numpy_keys(keys: torch.Tensor) -> np.ndarray:
    """The keys on the CPU, flat, int64. Raises InvalidArgumentError for other types."""
    device_of(keys)
    if keys.dtype not in (torch.int64, torch.int32):
        raise errors.InvalidArgumentError(
            "keys have the type %s; they must be torch.int64 or torch.int32" % keys.dtype
        )
    return np.ascontiguousarray(
        keys.detach().reshape(-1).to("cpu", torch.int64).numpy()
    )


def _version_of(value: Any) -> int:
    """Changes when a tensor, or one of a KeyedJaggedTensor, is written to."""
    if isinstance(value, torch.Tensor):
        return value._version
    # TorchRec's has its tensors under the same names, None for those that were not given.
    parts = (getattr(value, name, None) for name in ("_values", "_lengths", "_offsets"))
    return sum(part._version for part in parts if isinstance(part, torch.Tensor))


def not_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile leaves the function as it is. torch 1 has no torch.compile."""
    return torch.compiler.disable(function) if hasattr(torch, "compiler") else function


class LookupModule(torch.nn.Module):
    """A module whose parameters are rows of tables.

    In training mode it records what it looks up, for the optimizer's step(); in evaluation mode it
    only reads, and a row that does not exist reads as its initial value. In the loop of a SYNC job
    both read the parameters of the rank's step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.handles: list[TableHandle] = []
        # Looked up since the last step(), or with a gradient since then.
        self._recorded: list[Rows] = []
        # By session and step: the input, its version, and its rows on their way.
        self._prefetched: dict[tuple[Session, int], tuple[Any, int, Fetch]] = {}
        self._client: Optional[Client] = None
        # Whether an optimizer pushes what is recorded.
        self.has_optimizer = False
        self._warned = False

    def __getstate__(self) -> dict[str, Any]:
        # A copy, such as a moving average, looks up by itself and is not trained.
        return {
            **self.__dict__,
            "_client": None,
            "_recorded": [],
            "_prefetched": {},
            "has_optimizer": False,
        }

    def wanted(self, *inputs: Any) -> list[Wanted]:
        """The lookups of a forward with these inputs."""
        raise NotImplementedError

    def use(self, client: Client) -> None:
        """Looks up with this client instead of that of pawl.init."""
        self._client = client

    def client(self) -> Client:
        """The client that looks up."""
        return self._client or job_module.current().client

    @not_compiled
    def prefetch(self, inputs: Any, session: Session, step: int) -> Fetch:
        """Returns the pull that forward needs for these inputs, by a rank for a later step."""
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        fetch = Fetch(self.wanted(*inputs), self.client())
        # A rank does not go back to earlier steps, and may have left this process.
        for other, earlier in list(self._prefetched):
            if not other.is_open or other is session and earlier < step - 1:
                del self._prefetched[other, earlier]
        self._prefetched[session, step] = (inputs[0], _version_of(inputs[0]), fetch)
        return fetch

    @not_compiled
    def fetch(self, device: torch.device, *inputs: Any) -> Fetch:
        """The rows that forward needs. Records them in training mode."""
        is_training = self.training and torch.is_grad_enabled()
        client = self.client()
        session = client.free_running
        job = None
        if self._client is None:
            current = job_module.current()
            # A SYNC job's evaluation waits for the rank's step as its training does: a partition
            # answers the free-running session at once, also if it is a step behind others.
            if is_training or current.mode == "SYNC" and current.is_in_step:
                job = current
                session = job.hosted_session()
        prefetched = None
        # An evaluation leaves the batch's rows to its training.
        if is_training and job is not None:
            prefetched = self._prefetched.pop((session, session.step), None)
        if (
            prefetched is not None
            and prefetched[0] is inputs[0]
            and prefetched[1] == _version_of(inputs[0])
        ):
            fetch = prefetched[2]
        else:
            fetch = Fetch(self.wanted(*inputs), client)
            parts = fetch.parts()
            fetch.pull = session.pull(parts) if parts else None
        fetch.wait(device, is_training, job)
        if is_training and self.has_optimizer:
            for rows in fetch.rows:
                rows.session = None if job is None else session
            self._recorded += [rows for rows in fetch.rows if rows.padding_row > 0]
        elif is_training and not self._warned:
            self._warned = True
            _log.warning(
                "no optimizer of pawl.torch trains table %r: its gradients are dropped; make the "
                "optimizer before the first forward, or call eval() (said once)",
                self.handles[0].name,
            )
        return fetch

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients that step() has not pushed. A forward without a gradient can get one."""
        super().zero_grad(set_to_none)
        self._release([rows for rows in self._recorded_now() if rows.has_gradient()])

    def gradient_leaves(self) -> Iterator[torch.Tensor]:
        """The rows whose gradients take_gradients would return."""
        for rows in self._recorded_now():
            if rows.leaf is not None and rows.leaf.grad is not None:
                yield rows.leaf

    def take_gradients(self, weight: float, element_type: str) -> list[CallPart]:
        """The gradients times the weight, all that came since the last call, for Session.push."""
        recorded = self._recorded_now()
        found = [(rows.distinct, rows.gradient()) for rows in recorded if rows.has_gradient()]
        self._release(recorded)
        if weight != 1.0:
            found = [(rows, gradient * np.float32(weight)) for rows, gradient in found]
        tables = [table.id for rows, _ in found for table in rows.tables]
        if len(set(tables)) == len(tables):
            return [rows.part(gradient, element_type) for rows, gradient in found]
        # Several lookups of a table: its keys may repeat.
        joined: dict[Table, list[tuple[np.ndarray, np.ndarray]]] = {}
        for rows, gradient in found:
            for table, some in rows.ranges():
                joined.setdefault(table, []).append((rows.keys[some], gradient[some]))
        return [
            push_item(
                table,
                np.concatenate([keys for keys, _ in parts]),
                np.concatenate([values for _, values in parts]),
                element_type=element_type,
            )
            for table, parts in sorted(joined.items(), key=lambda entry: entry[0].id)
        ]

    def forget(self) -> None:
        """Drops the gradients that have come."""
        self._release(self._recorded_now())

    def _recorded_now(self) -> list[Rows]:
        """What the rank whose step is computed has looked up; outside of steps: everything.

        A gradient of another rank of this process has come after its step() and waits for the next.
        """
        job = job_module.current() if self._client is None and job_module.has_open() else None
        if job is None or not job.is_in_step:
            return self._recorded
        session = job.hosted_session()
        # A rank that has left the process takes no more steps here.
        self._recorded = [
            rows for rows in self._recorded if rows.session is None or rows.session.is_open
        ]
        return [rows for rows in self._recorded if rows.session in (None, session)]

    def _release(self, released: list[Rows]) -> None:
        """Drops these and their gradients, until a backward() gives them another one."""
        dropped = set(map(id, released))
        self._recorded = [rows for rows in self._recorded if id(rows) not in dropped]
        for rows in released:
            rows.release(self)

    def on_late_gradient(self, rows: Rows, gradient: torch.Tensor) -> None:
        """A backward() after the step() has given released rows a gradient: their next one's."""
        if rows.leaf is None:
            self._recorded.append(rows)
        rows.add(gradient)
