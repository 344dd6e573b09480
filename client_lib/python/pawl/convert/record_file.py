"""Writes record files; worker/data/records/README.md describes the bytes."""

from __future__ import annotations

import dataclasses
import os
import struct
import types
import zlib
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from pawl import errors

_MAGIC = b"PAWLREC1"
_BLOCK_MAGIC = b"BLK1"
# Those of the reader.
_MAX_ROWS = 1 << 16
_MAX_BYTES = 16 << 20
_MAX_VALUES = 1 << 22
# type: its number and the NumPy type of its values.
_TYPES = {
    "float32": (1, np.dtype("<f4")),
    "float64": (2, np.dtype("<f8")),
    "int64": (3, np.dtype("<i8")),
    "bytes": (4, None),
}
COMPRESSIONS = ("none", "zlib", "zstd")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a record file.

    type: float32, float64, int64, or bytes for texts. is_list: a row has any number of values.
    """

    name: str
    type: str
    is_list: bool = False


def zstd_compressor() -> Optional[Callable[[bytes], bytes]]:
    """The first package that has zstd; None without one."""
    try:
        from compression import zstd  # pylint: disable=import-outside-toplevel

        return zstd.compress
    except ImportError:
        pass
    try:
        import zstandard  # pylint: disable=import-outside-toplevel

        return zstandard.ZstdCompressor().compress
    except ImportError:
        pass
    try:
        import pyarrow  # pylint: disable=import-outside-toplevel

        return lambda data: pyarrow.Codec("zstd").compress(data, asbytes=True)
    except ImportError:
        return None


def _compressor(name: str) -> Callable[[bytes], bytes]:
    if name == "none":
        return bytes
    if name == "zlib":
        return lambda data: zlib.compress(data, 6)
    if name != "zstd":
        raise errors.InvalidArgumentError(
            "compression is %r; it is one of %s" % (name, ", ".join(COMPRESSIONS))
        )
    compressor = zstd_compressor()
    if compressor is None:
        raise errors.FailedPreconditionError(
            "zstd needs the package zstandard or pyarrow (pip install zstandard), or Python 3.14"
        )
    return compressor


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    return str(value).encode()


def _texts(values: Sequence[bytes]) -> bytes:
    ends = np.cumsum([len(value) for value in values], dtype=np.uint64)
    if len(ends) and ends[-1] > _MAX_BYTES:
        raise _TooLarge
    return ends.astype("<u4").tobytes() + b"".join(values)


class _TooLarge(Exception):
    """A block is beyond a limit of the reader."""


class RecordWriter:
    """Writes samples to a record file.

        with RecordWriter("clicks.rec", [Column("label", "float32"),
                                         Column("user", "int64"),
                                         Column("items", "bytes", is_list=True)]) as writer:
            writer.write({"label": labels, "user": users, "items": lists_of_items})

    A column is an array, or a sequence with None for values that are absent; a NaN and a masked
    element (numpy.ma) are absent, too.
    A list column is a sequence of sequences, or (values, offsets) as in Parquet: row i has
    values[offsets[i]:offsets[i + 1]]. The file appears under its name when it is complete; after an
    exception it does not.

    Args:
      path: the file.
      columns: its columns.
      rows_per_block: the rows of a block, up to 65,536. A streamed epoch shuffles blocks, and a
        block has each distinct value once: larger ones are read faster, smaller ones mix better.
      compression: "none", "zlib" or "zstd".
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[Column],
        *,
        rows_per_block: int = 8192,
        compression: str = "none",
    ):
        if not 1 <= rows_per_block <= _MAX_ROWS:
            raise errors.InvalidArgumentError(
                "rows_per_block is %d; it is between 1 and %d" % (rows_per_block, _MAX_ROWS)
            )
        self._columns = list(columns)
        self._path = str(path)
        self._rows_per_block = rows_per_block
        self._compress = _compressor(compression)
        self._compression = COMPRESSIONS.index(compression)
        self._rows = 0
        schema = self._schema()
        # Hidden: a folder of data does not stand for it.
        folder, name = os.path.split(self._path)
        self._temporary = os.path.join(folder, ".%s.tmp" % name)
        # Closed by close().
        self._file = open(self._temporary, "wb")  # pylint: disable=consider-using-with
        self._file.write(_MAGIC + struct.pack("<II", len(schema), zlib.crc32(schema)) + schema)

    @property
    def rows(self) -> int:
        """The rows that have been written."""
        return self._rows

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes rows: a value of each column for each of them."""
        missing = [column.name for column in self._columns if column.name not in data]
        if missing:
            raise errors.InvalidArgumentError("the column %r is missing" % missing[0])
        parts = [_Values(column, data[column.name]) for column in self._columns]
        rows = len(parts[0])
        for column, part in zip(self._columns, parts):
            if len(part) != rows:
                raise errors.InvalidArgumentError(
                    "the column %r has %d rows, but %r has %d"
                    % (column.name, len(part), self._columns[0].name, rows)
                )
        for begin in range(0, rows, self._rows_per_block):
            self._write_rows(parts, begin, min(begin + self._rows_per_block, rows))

    def close(self) -> None:
        """Ends the file, and gives it its name."""
        self._file.write(self._block_head(0, b"", 0, b""))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)

    def abandon(self) -> None:
        """Removes what has been written."""
        self._file.close()
        os.unlink(self._temporary)

    def _schema(self) -> bytes:
        if not self._columns:
            raise errors.InvalidArgumentError("a record file needs columns")
        if len({column.name for column in self._columns}) < len(self._columns):
            raise errors.InvalidArgumentError("two columns have the same name")
        schema = struct.pack("<I", len(self._columns))
        for column in self._columns:
            if column.type not in _TYPES:
                raise errors.InvalidArgumentError(
                    "the column %r has the type %r; it is one of %s"
                    % (column.name, column.type, ", ".join(_TYPES))
                )
            name = column.name.encode()
            schema += struct.pack("<BBH", _TYPES[column.type][0], column.is_list, len(name)) + name
        return schema

    def _write_rows(self, parts: Sequence["_Values"], begin: int, end: int) -> None:
        try:
            content = b"".join(part.encode(begin, end) for part in parts)
            if len(content) > _MAX_BYTES:
                raise _TooLarge
        except _TooLarge:
            if end - begin == 1:
                raise errors.InvalidArgumentError(
                    "row %d is too large: a block has at most %d bytes" % (self._rows, _MAX_BYTES)
                ) from None
            middle = (begin + end) // 2
            self._write_rows(parts, begin, middle)
            self._write_rows(parts, middle, end)
            return
        stored, compression = self._compress(content), self._compression
        if len(stored) >= len(content):
            stored, compression = content, 0
        self._file.write(self._block_head(end - begin, stored, compression, content) + stored)
        self._rows += end - begin

    def _block_head(self, rows: int, stored: bytes, compression: int, content: bytes) -> bytes:
        head = _BLOCK_MAGIC + struct.pack(
            "<IIIIIQ",
            rows,
            len(stored),
            len(content),
            compression,
            zlib.crc32(stored),
            self._rows,
        )
        return head + struct.pack("<I", zlib.crc32(head))


class _Values:
    """The rows of a column, checked and converted."""

    def __init__(self, column: Column, data: Any):
        self._column = column
        self._offsets: Optional[np.ndarray] = None
        # By row: whether there is a value. None: everywhere.
        self._present: Optional[np.ndarray] = None
        if column.is_list:
            values = self._lists(data)
            self._refuse_nan(values)
        else:
            values = self._find_absent(data)
        self._values = self._converted(values)

    def __len__(self) -> int:
        return len(self._values) if self._offsets is None else len(self._offsets) - 1

    def _error(self, what: str) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError("the column %r %s" % (self._column.name, what))

    def _lists(self, data: Any) -> Any:
        """The values of all rows; sets the offsets."""
        if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], np.ndarray):
            values, self._offsets = data[0], data[1].astype(np.int64)
            if (
                len(self._offsets) == 0
                or self._offsets[0] != 0
                or self._offsets[-1] != len(values)
                or (np.diff(self._offsets) < 0).any()
            ):
                raise self._error("has offsets that do not fit its values")
            return values
        if isinstance(data, np.ndarray) and data.ndim == 2:
            self._offsets = np.arange(len(data) + 1, dtype=np.int64) * data.shape[1]
            return data.reshape(-1)
        rows = [() if row is None else row for row in data]
        self._offsets = np.concatenate(
            ([0], np.cumsum([len(row) for row in rows], dtype=np.int64))
        ).astype(np.int64)
        return [value for row in rows for value in row]

    def _find_absent(self, data: Any) -> Any:
        """The values, without a mask; sets _present."""
        present = None
        if isinstance(data, np.ma.MaskedArray):
            present, data = ~np.ma.getmaskarray(data), data.data
        if not isinstance(data, np.ndarray) or data.dtype.kind == "O":
            # A NaN is the only value that differs from itself.
            given = np.fromiter(
                (value is not None and value == value for value in data), bool, len(data)
            )
            present = given if present is None else present & given
        elif data.dtype.kind == "f" and data.ndim == 1:
            present = ~np.isnan(data) & (True if present is None else present)
        if present is not None and not present.all():
            self._present = present
        return data

    def _refuse_nan(self, values: Any) -> None:
        if isinstance(values, np.ndarray) and values.dtype.kind != "O":
            has_nan = values.dtype.kind == "f" and bool(np.isnan(values).any())
        else:
            has_nan = any(
                isinstance(value, (float, np.floating)) and np.isnan(value) for value in values
            )
        if has_nan:
            raise self._error("has a list with NaN; remove it from the list")

    def _converted(self, values: Any) -> Any:
        if isinstance(values, np.ndarray) and values.ndim != 1:
            raise self._error("has %d dimensions; a column has one" % values.ndim)
        if self._column.type == "bytes":
            if isinstance(values, np.ndarray):
                values = values.tolist()
            present = self._present
            return [
                _as_bytes(value) if present is None or present[i] else b""
                for i, value in enumerate(values)
            ]
        dtype = _TYPES[self._column.type][1]
        if not isinstance(values, np.ndarray) or values.dtype.kind == "O":
            present = self._present
            given = [
                value if present is None or present[i] else 0 for i, value in enumerate(values)
            ]
            try:
                values = np.array(given) if given else np.empty(0, dtype)
                if self._column.type == "int64" and values.dtype.kind == "f":
                    # NumPy has made floats of integers that are beside a float.
                    values = np.array([_exact(value) for value in given])
            except (TypeError, ValueError) as error:
                raise self._error("has values that are not numbers: %s" % error) from error
        elif self._present is not None:
            values = np.where(self._present, values, 0)
        if values.dtype.kind not in "biuf":
            raise self._error("has values that are not numbers: %s" % values.dtype)
        if self._column.type != "int64":
            return values.astype(dtype)
        if values.dtype.kind == "f":
            if not (np.abs(values) < 2.0**63).all() or (values.astype(dtype) != values).any():
                raise self._error("has values that are not integers of 64 bits")
        if values.dtype.kind == "u" and len(values) and values.max() >= 2**63:
            raise self._error("has integers of 2^63 or more; convert it to bytes")
        return values.astype(dtype)

    def encode(self, begin: int, end: int) -> bytes:
        """The chunk of the rows."""
        first, last, parts = begin, end, []
        present = None if self._present is None else self._present[begin:end]
        if present is not None and not present.all():
            parts.append(np.packbits(present, bitorder="little").tobytes())
        if self._offsets is not None:
            first, last = int(self._offsets[begin]), int(self._offsets[end])
            parts.append((self._offsets[begin + 1 : end + 1] - first).astype("<u4").tobytes())
        if last - first > _MAX_VALUES:
            raise _TooLarge
        values = self._values[first:last]
        has_presence = present is not None and not present.all()
        distinct, numbers = _distinct(values)
        if numbers is None:
            head = struct.pack("<BBBBII", 0, 0, has_presence, 0, last - first, 0)
            return head + b"".join(parts) + self._plain(values)
        width = 1 if len(distinct) <= 1 << 8 else 2 if len(distinct) <= 1 << 16 else 4
        head = struct.pack(
            "<BBBBII", 1, width, has_presence, 0, last - first, len(distinct)
        )
        parts += [self._plain(distinct), numbers.astype("<u%d" % width).tobytes()]
        return head + b"".join(parts)

    def _plain(self, values: Any) -> bytes:
        return _texts(values) if self._column.type == "bytes" else values.tobytes()


def _exact(value: Any) -> Any:
    """A float that is an integer, as that; others as they are."""
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return int(value) if is_whole else value


def _distinct(values: Any) -> tuple[Any, Optional[np.ndarray]]:
    """The distinct values and each value's number; (values, None) if that would not pay."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f":
            # By their bits, so that -0.0 stays what it is.
            bits = values.view("<u%d" % values.dtype.itemsize)
            distinct, numbers = np.unique(bits, return_inverse=True)
            distinct = distinct.view(values.dtype)
        else:
            distinct, numbers = np.unique(values, return_inverse=True)
    else:
        places: dict[bytes, int] = {}
        numbers = np.fromiter(
            (places.setdefault(value, len(places)) for value in values), np.int64, len(values)
        )
        distinct = list(places)  # type: ignore[assignment]
    # Numbers are cheaper than texts to read again.
    most = 0.5 if isinstance(values, np.ndarray) else 0.75
    return (values, None) if len(distinct) > most * len(values) else (distinct, numbers)
