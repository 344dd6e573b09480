"""A process's membership in a job, its tables, and pushes and pulls."""

from __future__ import annotations

import collections
import ctypes
import html
import json
import os
import threading
import weakref
from typing import Any, Iterable, Iterator, Optional, Sequence, Union

import numpy as np

from pawl import _abi, errors, specs
from pawl.futures import Future, start

Keys = Union[np.ndarray, Sequence[int]]

# What servers put into a page of a scan at most (proto/parameter.proto, ScanRequest).
_PAGE_BYTES = 4 << 20
# Pages that a scan requests ahead.
_PAGES_AHEAD = 4

_ELEMENT_TYPES = {"float32": 0, "bfloat16": _abi.BFLOAT16, "float16": _abi.FLOAT16}


def _milliseconds(seconds: Optional[float]) -> int:
    return 0 if seconds is None else max(1, int(seconds * 1000))


def keys_of(keys: Keys) -> np.ndarray:
    """The keys as a contiguous array of uint64 without copying it if it is one.

    int64 is taken bit by bit, so -1 is 2**64 - 1. Raises InvalidArgumentError for other types.
    """
    array = np.asarray(keys)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype == np.int64:
        array = array.view(np.uint64) if array.flags.c_contiguous else array.copy().view(np.uint64)
    elif array.dtype.kind in "iu":
        if array.dtype.kind == "i" and array.size and array.min() < 0:
            array = array.astype(np.int64).view(np.uint64)
        array = array.astype(np.uint64, copy=False)
    else:
        raise errors.InvalidArgumentError(
            "keys have the type %s; they must be integers of at most 64 bits" % array.dtype
        )
    return np.ascontiguousarray(array).reshape(-1)


def _values_of(values: Any, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype != np.float32:
        if array.dtype.kind not in "fiu":
            raise errors.InvalidArgumentError(
                "%s have the type %s; they must be numbers" % (what, array.dtype)
            )
        array = array.astype(np.float32)
    return np.ascontiguousarray(array)


class Table:
    """A table of the job, from Client.table, Client.dense or Client.open.

    Sparse tables have rows of `dim` numbers under 64-bit keys; a row exists from its first push on,
    and reads as its initial value before. Dense tables are one tensor of `shape`.
    """

    def __init__(self, client: "Client", spec: dict[str, Any]):
        self._client = client
        self.spec = spec
        self.id = int(spec["id"])
        self.name: str = spec["name"]
        self.is_dense = spec["kind"] == "DENSE"
        self.shape = tuple(int(extent) for extent in spec.get("shape", ()))
        self.dim = int(spec.get("row_width", 0))

    def __repr__(self) -> str:
        if self.is_dense:
            return "pawl.Table(%r, shape=%r)" % (self.name, self.shape)
        return "pawl.Table(%r, dim=%d)" % (self.name, self.dim)

    def unique(self, keys: Keys) -> tuple[np.ndarray, np.ndarray]:
        """The distinct keys, in the order in which they are sent, and each key's place in them."""
        flat = keys_of(keys)
        distinct = np.empty(flat.size, np.uint64)
        inverse = np.empty(flat.size, np.int64)
        count = ctypes.c_size_t()
        _abi.check(
            _abi.invoke(
                "pawl_unique",
                self._client.handle,
                self.id,
                flat.ctypes.data,
                flat.size,
                distinct.ctypes.data,
                inverse.ctypes.data,
                ctypes.byref(count),
            )
        )
        return distinct[: count.value], inverse

    def pull(
        self,
        keys: Optional[Keys] = None,
        *,
        out: Optional[np.ndarray] = None,
        timeout: Optional[float] = None,
    ) -> np.ndarray:
        """Reads rows, shape (*keys' shape, dim), or a dense table's tensor. Changes nothing."""
        return self.pull_async(keys, out=out, timeout=timeout).wait()

    def pull_async(
        self,
        keys: Optional[Keys] = None,
        *,
        out: Optional[np.ndarray] = None,
        timeout: Optional[float] = None,
    ) -> Future[np.ndarray]:
        """As pull, without waiting. `out`: a contiguous float32 array to write to."""
        item = pull_item(self, keys, out=out)
        return self._client.free_running.pull([item], timeout=timeout, result=item.values)

    def assign(
        self,
        keys: Optional[Keys],
        values: Any,
        *,
        slots: Any = None,
        keep_slots: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Sets rows, or a dense table, once; rows that do not exist are created.

        Args:
          keys: distinct integers; None for a dense table.
          values: shape (*keys' shape, dim), or the tensor's.
          slots: the optimizer's state of each row (`slot_count` numbers), as pull_slots gives it;
            default: its initial value.
          keep_slots: leave the state of existing rows as it is.
          timeout: in seconds.
        """
        item = assign_item(self, keys, values, slots=slots, keep_slots=keep_slots)
        self._client.free_running.assign([item], timeout=timeout).wait()

    @property
    def slot_count(self) -> int:
        """Numbers of the optimizer's state for a row, or for the whole dense table."""
        return _abi.invoke("pawl_slot_count", self._client.handle, self.id)

    def pull_slots(
        self, keys: Optional[Keys] = None, *, timeout: Optional[float] = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows and the optimizer's state of them: (*keys' shape, slot_count)."""
        item = pull_item(self, keys)
        shape = (self.slot_count,) if self.is_dense else np.shape(keys) + (self.slot_count,)
        item.slots = np.empty(shape, np.float32)
        self._client.free_running.pull([item], timeout=timeout).wait()
        return item.values, item.slots

    def scan(
        self,
        *,
        slots: bool = False,
        page_rows: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Iterator[tuple[np.ndarray, ...]]:
        """Reads all rows, in pages of (keys, values), or (keys, values, slots).

        A page has the shapes (n,), (n, dim) and (n, slot_count), is never empty, and is the state
        of one partition at one moment; its keys ascend. A row that exists during the whole scan is
        in exactly one page, whatever servers are lost meanwhile; a row that is created meanwhile is
        in one page or in none. Changes nothing.

        Args:
          slots: read the optimizer's state too, as pull_slots does.
          page_rows: at most so many rows a page; default: 4 MiB. The server looks at all keys of
            the partition for each page, so small pages are slow.
          timeout: of each page, in seconds.
        """
        if self.is_dense:
            raise errors.InvalidArgumentError(
                "table %r is dense: pull reads it; scan is for rows" % self.name
            )
        if page_rows is not None and page_rows < 1:
            raise errors.InvalidArgumentError("page_rows is %d; the least is 1" % page_rows)
        slot_count = self.slot_count if slots else 0
        rows = max(1, _PAGE_BYTES // (8 + 4 * (self.dim + slot_count)))
        rows = rows if page_rows is None else min(rows, page_rows)
        return self._pages(rows, slot_count if slots else None, timeout)

    def _pages(
        self, rows: int, slot_count: Optional[int], timeout: Optional[float]
    ) -> Iterator[tuple[np.ndarray, ...]]:
        partitions = iter(range(int(self._client.job["partitions"])))
        coming: collections.deque[tuple[int, _Page]] = collections.deque()

        def request(partition: int, first_key: int) -> tuple[int, _Page]:
            return partition, _Page(self, partition, first_key, rows, slot_count, timeout)

        while True:
            while len(coming) < _PAGES_AHEAD:
                partition = next(partitions, None)
                if partition is None:
                    break
                coming.append(request(partition, 0))
            if not coming:
                return
            partition, page = coming.popleft()
            arrays, next_key = page.wait()
            if next_key is not None:
                coming.appendleft(request(partition, next_key))
            if arrays[0].size:
                yield arrays

    def push(
        self,
        keys: Optional[Keys],
        gradients: Any,
        *,
        timeout: Optional[float] = None,
        element_type: str = "float32",
    ) -> None:
        """Applies gradients, once, by the table's optimizer. Repeated keys' gradients are summed.

        Args:
          keys: integers; None for a dense table.
          gradients: shape (*keys' shape, dim), or the tensor's.
          timeout: in seconds.
          element_type: how gradients travel: float32, bfloat16 or float16.
        """
        self.push_async(keys, gradients, timeout=timeout, element_type=element_type).wait()

    def push_async(
        self,
        keys: Optional[Keys],
        gradients: Any,
        *,
        timeout: Optional[float] = None,
        element_type: str = "float32",
    ) -> Future[None]:
        """As push, without waiting. Neither array may be changed until the call has ended."""
        item = push_item(self, keys, gradients, element_type=element_type)
        return self._client.free_running.push([item], timeout=timeout)


class _Page:
    """A page of a scan on its way. `slot_count`: None if slots are not wanted."""

    def __init__(
        self,
        table: Table,
        partition: int,
        first_key: int,
        rows: int,
        slot_count: Optional[int],
        timeout: Optional[float],
    ):
        widths = [table.dim] if slot_count is None else [table.dim, slot_count]
        self._arrays = [np.empty(rows, np.uint64)]
        self._arrays += [np.empty((rows, width), np.float32) for width in widths]
        self._call: Future[dict[str, int]] = table._client.call(
            "pawl_scan",
            table.id,
            partition,
            first_key,
            self._arrays[0].ctypes.data,
            self._arrays[1].ctypes.data,
            self._arrays[2].ctypes.data if slot_count else None,
            rows,
            _milliseconds(timeout),
            kept=self._arrays,
            convert=json.loads,
        )

    def wait(self) -> tuple[tuple[np.ndarray, ...], Optional[int]]:
        """The arrays, and the first key of the next page if there is one."""
        result = self._call.wait()
        count = result["rows"]
        full = count == len(self._arrays[0])
        # A copy of a short page, so that it does not keep the room for a long one.
        arrays = tuple(array if full else array[:count].copy() for array in self._arrays)
        return arrays, result.get("next_key")


class Item:
    """Part of a call on one table. Keeps its arrays alive."""

    def __init__(
        self,
        table: Table,
        keys: Optional[np.ndarray],
        values: np.ndarray,
        flags: int,
        slots: Optional[np.ndarray] = None,
    ):
        self.table = table
        self.keys = keys
        self.values = values
        self.flags = flags
        self.slots = slots

    def to_c(self) -> _abi.Item:
        """pawl_item."""
        return _abi.Item(
            self.table.id,
            self.flags,
            None if self.keys is None else self.keys.ctypes.data,
            0 if self.keys is None else self.keys.size,
            self.values.ctypes.data,
            self.values.size,
            None if self.slots is None else self.slots.ctypes.data,
            0 if self.slots is None else self.slots.size,
        )


def _check_keys(table: Table, keys: Optional[Keys]) -> Optional[np.ndarray]:
    if table.is_dense:
        if keys is not None:
            raise errors.InvalidArgumentError(
                "table %r is dense: it is pushed and pulled whole, without keys" % table.name
            )
        return None
    if keys is None:
        raise errors.InvalidArgumentError("table %r is sparse: keys are missing" % table.name)
    return keys_of(keys)


def pull_item(
    table: Table,
    keys: Optional[Keys],
    *,
    out: Optional[np.ndarray] = None,
    distinct: bool = False,
) -> Item:
    """An item of Session.pull. Raises InvalidArgumentError if `out` does not fit."""
    flat = _check_keys(table, keys)
    shape = table.shape if table.is_dense else np.shape(keys) + (table.dim,)
    if out is None:
        out = np.empty(shape, np.float32)
    elif (
        not isinstance(out, np.ndarray)
        or out.dtype != np.float32
        or not out.flags.c_contiguous
        or not out.flags.writeable
        or out.size != np.prod(shape)
    ):
        raise errors.InvalidArgumentError(
            "out is %s; table %r needs a contiguous, writable float32 array of %s"
            % (_described(out), table.name, shape)
        )
    return Item(table, flat, out, _abi.KEYS_ARE_DISTINCT if distinct else 0)


def _described(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return "a %s" % type(value).__name__
    kind = "" if value.flags.writeable else "read-only "
    return "a %s%s array of %s" % (kind, value.dtype, value.shape)


def push_item(
    table: Table,
    keys: Optional[Keys],
    gradients: Any,
    *,
    distinct: bool = False,
    element_type: str = "float32",
) -> Item:
    """An item of Session.push. Raises InvalidArgumentError for another shape."""
    flat = _check_keys(table, keys)
    values = _values_of(gradients, "gradients")
    shape = table.shape if flat is None else np.shape(keys) + (table.dim,)
    # A scalar parameter is a tensor of one element.
    if values.shape != shape and values.size * int(np.prod(shape)) != 1:
        raise errors.InvalidArgumentError(
            "gradients or values of table %r have the shape %s instead of %s"
            % (table.name, values.shape, shape)
        )
    if element_type not in _ELEMENT_TYPES:
        raise errors.InvalidArgumentError(
            "element_type is %r; choose from %s" % (element_type, ", ".join(_ELEMENT_TYPES))
        )
    flags = _ELEMENT_TYPES[element_type] | (_abi.KEYS_ARE_DISTINCT if distinct else 0)
    return Item(table, flat, values, flags)


def assign_item(
    table: Table,
    keys: Optional[Keys],
    values: Any,
    *,
    slots: Any = None,
    keep_slots: bool = False,
) -> Item:
    """An item of Session.assign. Raises InvalidArgumentError for another shape."""
    item = push_item(table, keys, values)
    if keep_slots:
        item.flags |= _abi.KEEP_SLOTS
    if slots is not None:
        item.slots = _values_of(slots, "slots")
    return item


class Session:
    """A sender of pushes and pulls: the client's own (without steps), or a rank's."""

    def __init__(self, client: "Client", handle: ctypes.c_void_p, rank: Optional[int] = None):
        self._client = client
        self._handle: Optional[ctypes.c_void_p] = handle
        self.rank = rank

    @property
    def handle(self) -> ctypes.c_void_p:
        """pawl_session*. Raises CancelledError if the client or the rank is closed."""
        # The library has freed the session then.
        if self._handle is None or not self._client.handle:
            raise errors.CancelledError("rank %s is closed" % self.rank)
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether the rank has not been closed."""
        return self._handle is not None

    def close(self) -> None:
        """Stops hosting the rank. Ranks only."""
        handle, self._handle = self._handle, None
        if handle is not None and self.rank is not None:
            _abi.invoke("pawl_close_rank", self._client.handle, self.rank)

    @property
    def step(self) -> int:
        """The step to which calls made now belong. Ranks only."""
        return _abi.invoke("pawl_step", self.handle)

    def pull(
        self,
        items: Iterable[Item],
        *,
        step: Optional[int] = None,
        timeout: Optional[float] = None,
        result: Any = None,
    ) -> Future[Any]:
        """Reads all items in one call. `step`: the later step that a rank's pull is for."""
        items = list(items)
        return start(
            "pawl_pull",
            self.handle,
            _array(items),
            len(items),
            -1 if step is None else step,
            _milliseconds(timeout),
            kept=items,
            convert=lambda _: result,
        )

    def push(self, items: Iterable[Item], *, timeout: Optional[float] = None) -> Future[None]:
        """Pushes all items in one call."""
        items = list(items)
        return start(
            "pawl_push",
            self.handle,
            _array(items),
            len(items),
            _milliseconds(timeout),
            kept=items,
        )

    def assign(self, items: Iterable[Item], *, timeout: Optional[float] = None) -> Future[None]:
        """Sets all items in one call. A rank may assign only in the job's first step."""
        items = list(items)
        return start(
            "pawl_assign",
            self.handle,
            _array(items),
            len(items),
            _milliseconds(timeout),
            kept=items,
        )

    def set_learning_rates(
        self, rates: dict[Table, float], *, timeout: Optional[float] = None
    ) -> Future[None]:
        """Sets learning rates from this step on, as part of the step. Rank 0 only."""
        return start(
            "pawl_set_learning_rates",
            self.handle,
            (ctypes.c_uint32 * len(rates))(*(table.id for table in rates)),
            (ctypes.c_float * len(rates))(*rates.values()),
            len(rates),
            _milliseconds(timeout),
        )

    def end_step(self, *, timeout: Optional[float] = None) -> Future[None]:
        """Ends the step, once all its pushes are acknowledged. Ranks only."""
        return start("pawl_end_step", self.handle, _milliseconds(timeout))


def _array(items: Sequence[Item]) -> Any:
    return (_abi.Item * len(items))(*(item.to_c() for item in items))


class Client:
    """One process's membership in a job. Use it as a context manager, or call close().

    Args:
      scheduler: its host:port; default: the environment's PAWL_SCHEDULER.
      tls_dir: the folder with this process's certificate; default: PAWL_TLS_DIR.
      insecure: without certificates, allow a scheduler on another machine.
      token: instead of a certificate, for a client that is no worker: what `pawlctl token` prints;
        default: PAWL_TOKEN, unless tls_dir has a certificate.
      token_file: a file with the token, read again when it changes.
      ca: with a token: the file of the authorities of the daemons' certificates; default: ca.pem in
        tls_dir.
      worker: whether this process hosts ranks (pawl.init does this).
      node: (node, job_id, start count) of this process's previous incarnation, which ends at once.
      description: shown in logs and by `pawlctl nodes`.
      connect_timeout: seconds to wait for the scheduler and the job's servers.
      call_timeout: seconds, of calls that give none.
      tune_process: let the library set malloc for large calls; changes the whole process.

    Thread-safe, but close it only when no other thread uses it. Not usable after fork().
    """

    def __init__(
        self,
        scheduler: Optional[str] = None,
        *,
        tls_dir: Optional[str] = None,
        insecure: bool = False,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca: Optional[str] = None,
        worker: bool = False,
        node: tuple[str, int, int] = ("", 0, 0),
        description: Optional[str] = None,
        connect_timeout: float = 60.0,
        call_timeout: float = 120.0,
        tune_process: bool = False,
    ):
        self._handle: Optional[ctypes.c_void_p] = None
        self._describing = threading.Lock()
        scheduler = scheduler or os.environ.get("PAWL_SCHEDULER")
        if not scheduler:
            raise errors.InvalidArgumentError(
                "no scheduler: pass its host:port or set PAWL_SCHEDULER; pawl.LocalCluster starts "
                "one, and so does `pawl run`"
            )
        options = _abi.Options(
            ctypes.sizeof(_abi.Options),
            scheduler.encode(),
            tls_dir.encode() if tls_dir else None,
            insecure,
            worker,
            worker,
            node[0].encode() or None,
            node[1],
            node[2],
            description.encode() if description else None,
            _milliseconds(connect_timeout),
            _milliseconds(call_timeout),
            tune_process,
            token.encode() if token else None,
            token_file.encode() if token_file else None,
            ca.encode() if ca else None,
        )
        handle = ctypes.c_void_p()
        connected: Future[None] = start("pawl_connect", ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle
        self._finalizer = weakref.finalize(self, _disconnect, handle)
        self.scheduler = scheduler
        try:
            connected.wait()
        except BaseException:
            self.close()
            raise
        self.free_running = Session(self, _abi.invoke("pawl_free_running", handle))

    @property
    def handle(self) -> ctypes.c_void_p:
        """pawl_client*. Raises CancelledError if the client is closed."""
        if self._handle is None:
            raise errors.CancelledError("the client is closed")
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether close() has not been called."""
        return self._handle is not None

    def close(self) -> None:
        """Ends pending calls with CancelledError and leaves the job."""
        self._handle = None
        self._finalizer()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def describe(self) -> dict[str, Any]:
        """This membership: node, incarnation, state, the job, counters of calls."""
        text = ctypes.c_char_p()
        # The next call frees the text.
        with self._describing:
            _abi.check(_abi.invoke("pawl_describe", self.handle, ctypes.byref(text)))
            copy = text.value or b"{}"
        return json.loads(copy)

    @property
    def job(self) -> dict[str, Any]:
        """The job file's content, as a dictionary (proto/job.proto)."""
        return self.describe()["job"]

    def status(self, *, timeout: Optional[float] = None) -> "Status":
        """What `pawlctl status` shows. Displays itself in a notebook."""
        return self.call("pawl_status", _milliseconds(timeout), convert=_status).wait()

    def table(
        self,
        name: str,
        dim: int,
        *,
        optimizer: specs.Optimizer,
        init: Optional[specs.Initializer] = None,
    ) -> Table:
        """Creates a table of rows of `dim` numbers, or opens an equal one.

        Raises AlreadyExistsError if the name has another width, optimizer or initial value.
        """
        return self.create(
            specs.sparse_spec(name, dim, optimizer, init or specs.Constant(0.0))
        ).wait()

    def dense(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        optimizer: specs.Optimizer,
        init: Optional[specs.Initializer] = None,
    ) -> Table:
        """Creates a table that is one tensor, or opens an equal one."""
        return self.create(
            specs.dense_spec(name, shape, optimizer, init or specs.Constant(0.0))
        ).wait()

    def create(self, spec: dict[str, Any]) -> Future[Table]:
        """Creates a table by its spec (pawl.TableSpec as a dictionary), without waiting."""
        return self.call(
            "pawl_create_table", json.dumps(spec).encode(), 0, convert=self._to_table
        )

    def open(self, name: str) -> Table:
        """Opens a table that exists. Raises NotFoundError if there is none of this name."""
        return self.call("pawl_open_table", name.encode(), 0, convert=self._to_table).wait()

    def tables(self) -> list[Table]:
        """All tables of the job."""
        listed = self.call("pawl_list_tables", 0, convert=json.loads).wait()
        return [Table(self, spec) for spec in listed.get("tables", [])]

    def barrier(
        self, name: str, parties: int, party: int, *, timeout: Optional[float] = None
    ) -> None:
        """Waits until all `parties` are here. Each name is used once."""
        self.call("pawl_barrier", name.encode(), parties, party, _milliseconds(timeout)).wait()

    def call(self, name: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Starts a call of the C interface that takes this client first."""
        return start(name, self.handle, *arguments, **options)

    def _to_table(self, text: str) -> Table:
        return Table(self, json.loads(text))


def _disconnect(handle: ctypes.c_void_p) -> None:
    if not _abi.is_forked():
        _abi.invoke("pawl_disconnect", handle)


def _status(text: str) -> "Status":
    return Status(json.loads(text))


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
