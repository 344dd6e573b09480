"""Tables of a job: their rows and tensors."""

from __future__ import annotations

import collections
import json
import math
from typing import TYPE_CHECKING, Any, Iterator, Optional

import numpy as np

from pawl import _abi, errors
from pawl.futures import Future, milliseconds, start
from pawl.items import Keys, assign_item, pull_item, push_item

if TYPE_CHECKING:
    from pawl.client import Client

# The most that servers put into a page of a scan (proto/parameter.proto, ScanRequest).
_PAGE_BYTES = 4 << 20
# Pages that a scan requests ahead.
_PAGES_AHEAD = 4



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
        # Dense: the number of elements.
        self.size = math.prod(self.shape)

    def __repr__(self) -> str:
        if self.is_dense:
            return "pawl.Table(%r, shape=%r)" % (self.name, self.shape)
        return "pawl.Table(%r, dim=%d)" % (self.name, self.dim)

    def key_of_each_partition(self) -> np.ndarray:
        """A key in each of the job's partitions, in their order (client_lib/base/partitioner.h)."""
        # PartitionOf takes the remainder of a bijection of the key, which this inverts.
        keys = np.arange(int(self._client.job["partitions"]), dtype=np.uint64)
        for factor, shift in ((0x94D049BB133111EB, 31), (0xBF58476D1CE4E5B9, 27)):
            keys ^= keys >> np.uint64(shift) ^ keys >> np.uint64(2 * shift)
            keys *= np.uint64(pow(factor, -1, 2**64))
        keys ^= keys >> np.uint64(30) ^ keys >> np.uint64(60)
        return keys - np.uint64(self.id * 0x9E3779B97F4A7C15 % 2**64)

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
        shape: tuple[int, ...] = (self.slot_count,)
        if not self.is_dense:
            shape = np.shape(np.asarray(keys)) + shape
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
          page_rows: the most rows of a page; default: 4 MiB. The server looks at all keys of
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
            milliseconds(timeout),
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
