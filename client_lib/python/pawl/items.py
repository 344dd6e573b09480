"""The parts of a push, a pull or an assignment, as the C interface takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Optional, Protocol, Sequence, Union

import numpy as np

from pawl import _abi, errors

if TYPE_CHECKING:
    from pawl.client import Client
    from pawl.table import Table

Keys = Union[np.ndarray, Sequence[int]]

_ELEMENT_TYPES = {"float32": 0, "bfloat16": _abi.BFLOAT16, "float16": _abi.FLOAT16}


def flags_of(element_type: str) -> int:
    """How gradients travel: float32, bfloat16 or float16."""
    if element_type not in _ELEMENT_TYPES:
        raise errors.InvalidArgumentError(
            "element_type is %r; choose from %s" % (element_type, ", ".join(_ELEMENT_TYPES))
        )
    return _ELEMENT_TYPES[element_type]


def keys_of(keys: Keys) -> np.ndarray:
    """The keys as a contiguous array of uint64 without copying it if it is one.

    int64 is taken bit by bit, so -1 is 2**64 - 1. Raises InvalidArgumentError for other types.
    """
    array = np.asarray(keys)
    if array.dtype.kind in "fO" and not isinstance(keys, np.ndarray):
        array = _integers_of(keys, array)
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


def _integers_of(keys: Any, array: np.ndarray) -> np.ndarray:
    """The keys as uint64, or `array` if one is no integer of 64 bits.

    NumPy makes float64 of a list that has integers beyond int64 beside others.
    """
    values = np.array(keys, dtype=object)
    flat = values.reshape(-1).tolist()
    for value in flat:
        if not isinstance(value, (int, np.integer)) or not -(2**63) <= value < 2**64:
            return array
    bits = [int(value) & (2**64 - 1) for value in flat]
    return np.array(bits, np.uint64).reshape(values.shape)


def _values_of(values: Any, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype != np.float32:
        if array.dtype.kind not in "fiu":
            raise errors.InvalidArgumentError(
                "%s have the type %s; they must be numbers" % (what, array.dtype)
            )
        array = array.astype(np.float32)
    return np.ascontiguousarray(array)


def address_of(array: np.ndarray) -> int:
    """Where its first element is. array.ctypes.data takes longer."""
    return array.__array_interface__["data"][0]


class CallPart(Protocol):
    """Part of a call. Keeps its arrays alive."""

    def to_c(self) -> Iterable[_abi.Item]:
        """One pawl_item for each table."""


class Item:
    """A CallPart of one table."""

    def __init__(
        self,
        table: "Table",
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

    def to_c(self) -> Iterable[_abi.Item]:
        """See CallPart."""
        yield _abi.Item(
            self.table.id,
            self.flags,
            None if self.keys is None else address_of(self.keys),
            0 if self.keys is None else self.keys.size,
            address_of(self.values),
            self.values.size,
            None if self.slots is None else address_of(self.slots),
            0 if self.slots is None else self.slots.size,
        )


class DistinctRows:
    """The distinct keys of lookups in several tables of one width, table by table.

    Args:
      client: that of the tables.
      tables: each once.
      keys: those of each table, uint64 or int64, contiguous; they may repeat.
    """

    def __init__(
        self, client: "Client", tables: Sequence["Table"], keys: Sequence[np.ndarray]
    ):
        self.tables = tables
        count = sum(some.size for some in keys)
        self.keys = np.empty(count, np.uint64)
        # The row of each key: its place among the distinct keys of all tables.
        self.places = np.empty(count, np.int64)
        self._items = (_abi.Item * len(tables))(
            *(
                _abi.Item(table.id, 0, address_of(some), some.size)
                for table, some in zip(tables, keys)
            )
        )
        _abi.check(
            _abi.invoke(
                "pawl_unique_items",
                client.handle,
                self._items,
                len(tables),
                address_of(self.keys),
                address_of(self.places),
            )
        )
        # How many distinct keys each table has.
        self.counts = [item.key_count for item in self._items]

    def ranges(self) -> Iterable[tuple["Table", slice]]:
        """The tables that have rows, and where these are."""
        begin = 0
        for table, count in zip(self.tables, self.counts):
            if count > 0:
                yield table, slice(begin, begin + count)
            begin += count

    def part(self, values: np.ndarray, element_type: str = "float32") -> "RowsPart":
        """The rows as a part of a pull or push: `values` has a row for each distinct key."""
        return RowsPart(self, values, flags_of(element_type) | _abi.KEYS_ARE_DISTINCT)

    def to_c(self, values: np.ndarray, flags: int) -> Iterable[_abi.Item]:
        """One pawl_item for each table with keys; valid until the next call."""
        address = address_of(values)
        dim = values.shape[1]
        for item in self._items:
            if item.key_count > 0:
                item.flags, item.values, item.value_count = flags, address, item.key_count * dim
                address += 4 * item.value_count
                yield item


class RowsPart:
    """A CallPart of several tables, whose rows are one array."""

    def __init__(self, rows: DistinctRows, values: np.ndarray, flags: int):
        self._rows, self._values, self._flags = rows, values, flags

    def to_c(self) -> Iterable[_abi.Item]:
        """See CallPart."""
        return self._rows.to_c(self._values, self._flags)


class TensorsPart:
    """A CallPart of several dense tables, whose tensors are one array, one after the other."""

    def __init__(
        self, tables: Sequence["Table"], values: np.ndarray, element_type: str = "float32"
    ):
        self._tables, self._values, self._flags = tables, values, flags_of(element_type)

    def to_c(self) -> Iterable[_abi.Item]:
        """See CallPart."""
        address = address_of(self._values)
        for table in self._tables:
            yield _abi.Item(table.id, self._flags, None, 0, address, table.size)
            address += 4 * table.size


def _check_keys(table: "Table", keys: Optional[Keys]) -> Optional[np.ndarray]:
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
    table: "Table",
    keys: Optional[Keys],
    *,
    out: Optional[np.ndarray] = None,
    distinct: bool = False,
) -> Item:
    """An item of Session.pull. Raises InvalidArgumentError if `out` does not fit."""
    flat = _check_keys(table, keys)
    shape = table.shape if table.is_dense else np.shape(np.asarray(keys)) + (table.dim,)
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
    table: "Table",
    keys: Optional[Keys],
    gradients: Any,
    *,
    distinct: bool = False,
    element_type: str = "float32",
) -> Item:
    """An item of Session.push. Raises InvalidArgumentError for another shape."""
    flat = _check_keys(table, keys)
    values = _values_of(gradients, "gradients")
    shape = table.shape if flat is None else np.shape(np.asarray(keys)) + (table.dim,)
    # A scalar parameter is a tensor of one element.
    if values.shape != shape and values.size * int(np.prod(shape)) != 1:
        raise errors.InvalidArgumentError(
            "gradients or values of table %r have the shape %s instead of %s"
            % (table.name, values.shape, shape)
        )
    flags = flags_of(element_type) | (_abi.KEYS_ARE_DISTINCT if distinct else 0)
    return Item(table, flat, values, flags)


def assign_item(
    table: "Table",
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


def array_of(parts: Sequence[CallPart]) -> Any:
    """An array of pawl_item. Borrows the arrays of the parts."""
    items = [item for part in parts for item in part.to_c()]
    return (_abi.Item * len(items))(*items)
