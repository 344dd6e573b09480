"""The columns of Parquet, .npy and CSV files, in chunks of rows."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import zlib
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np

from pawl import errors
from pawl.convert.record_file import Column
from pawl.parquet import _import_pyarrow

_CHUNK_ROWS = 65536
# A longer one does not fit into a block of a record file.
_MAX_FIELD_LENGTH = 16 << 20
# What a reader of CSV raises for a file that is damaged, cut or no text.
_DAMAGED = (csv.Error, EOFError, zlib.error, gzip.BadGzipFile)


@dataclasses.dataclass
class Source:
    """Columns, and an iterator of chunks: a value for each column, as RecordWriter.write takes."""

    columns: Sequence[Column]
    chunks: Iterator[Mapping[str, Any]]


def _invalid(text: str, *arguments: Any) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(text % arguments)


def _type_of(dtype: np.dtype, where: str) -> str:
    """The type of a column with an array's values."""
    if dtype.kind in "biu":
        return "int64"
    if dtype.kind == "f":
        return "float32" if dtype.itemsize <= 4 else "float64"
    if dtype.kind in "SU":
        return "bytes"
    raise _invalid(
        "%s has values of the type %s; convert them to numbers or strings", where, dtype
    )


def npy(files: Mapping[str, str], lists: Sequence[str] = ()) -> Source:
    """Columns of .npy files, by name.

    An array of shape [n] is a column. One of shape [n, k] is k columns name_0, ..., name_k-1; if
    its name is in `lists`, one column with lists of k values.
    """
    arrays = {}
    for name, path in files.items():
        try:
            arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise _invalid("%s is not a .npy file that can be read: %s", path, error) from error
        if arrays[name].ndim not in (1, 2):
            shape = arrays[name].shape
            raise _invalid("%s has the shape %s; it must be [n] or [n, k]", path, shape)
    rows = {name: len(array) for name, array in arrays.items()}
    if len(set(rows.values())) > 1:
        raise _invalid(
            "the arrays have different numbers of rows: %s",
            ", ".join("%s has %d" % item for item in rows.items()),
        )
    columns: list[Column] = []
    for name, array in arrays.items():
        kind = _type_of(array.dtype, files[name])
        if name in lists:
            columns.append(Column(name, kind, is_list=True))
        elif array.ndim == 1:
            columns.append(Column(name, kind))
        else:
            columns += [Column("%s_%d" % (name, i), kind) for i in range(array.shape[1])]

    def chunks() -> Iterator[Mapping[str, Any]]:
        for begin in range(0, next(iter(rows.values())), _CHUNK_ROWS):
            chunk: dict[str, Any] = {}
            for name, array in arrays.items():
                part = np.ascontiguousarray(array[begin : begin + _CHUNK_ROWS])
                if name in lists:
                    chunk[name] = part.reshape(len(part), -1)
                elif array.ndim == 1:
                    chunk[name] = part
                else:
                    chunk.update({"%s_%d" % (name, i): part[:, i] for i in range(part.shape[1])})
            yield chunk

    return Source(columns, chunks())


def _arrow_type(kind: Any, where: str) -> str:
    pyarrow = _import_pyarrow()
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_temporal(kind):
        return "int64"
    if types.is_floating(kind):
        return "float64" if types.is_float64(kind) else "float32"
    if (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_null(kind)
    ):
        return "bytes"
    raise _invalid(
        "%s has values of the type %s; cast them to numbers or strings, or leave the column out "
        "(--columns)",
        where,
        kind,
    )


def _is_arrow_list(kind: Any) -> bool:
    types = _import_pyarrow().types
    return bool(
        types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    )


def _arrow_values(column: Any, array: Any) -> Any:
    """The values of an array of pyarrow, masked where it has none."""
    pyarrow = _import_pyarrow()
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.type == "bytes":
        return array.to_pylist()
    if pyarrow.types.is_boolean(array.type):
        array = array.cast(pyarrow.uint8())
    if pyarrow.types.is_temporal(array.type):
        width = array.type.bit_width
        array = array.cast(pyarrow.int32() if width == 32 else pyarrow.int64())
    if array.null_count == 0:
        return array.to_numpy(zero_copy_only=False)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    return np.ma.masked_array(values, ~present)


def parquet(files: Sequence[str], names: Optional[Sequence[str]] = None) -> Source:
    """Columns of Parquet files with the same schema; `names`: those to take, default all."""
    pyarrow = _import_pyarrow()
    schema = None
    for path in files:
        try:
            found = pyarrow.parquet.read_schema(path)
        except (OSError, ValueError) as error:
            raise _invalid("%s is not a Parquet file that can be read: %s", path, error) from error
        missing = sorted(set(names or ()) - set(found.names))
        if missing:
            raise _invalid("%s has no column %r; it has %s", path, missing[0], found.names)
        if names is not None:
            found = pyarrow.schema([found.field(name) for name in names])
        if schema is not None and not found.remove_metadata().equals(schema.remove_metadata()):
            raise _invalid("%s has other columns or types than %s", path, files[0])
        schema = found if schema is None else schema
    columns = []
    for field in schema or ():
        is_list = _is_arrow_list(field.type)
        kind = field.type.value_type if is_list else field.type
        where = "the column %r of %s" % (field.name, files[0])
        columns.append(Column(field.name, _arrow_type(kind, where), is_list))

    def chunks() -> Iterator[Mapping[str, Any]]:
        for path in files:
            with pyarrow.parquet.ParquetFile(path) as file:
                batches = file.iter_batches(_CHUNK_ROWS, columns=[c.name for c in columns])
                for batch in batches:
                    yield {c.name: _arrow_column(c, batch.column(c.name)) for c in columns}

    return Source(columns, chunks())


def _arrow_column(column: Column, array: Any) -> Any:
    if not column.is_list:
        return _arrow_values(column, array)
    pyarrow = _import_pyarrow()
    lengths = pyarrow.compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    values = array.flatten()
    if values.null_count:
        raise _invalid(
            "the column %r has %d lists with empty values; remove them from the lists",
            column.name,
            values.null_count,
        )
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64)
    return _arrow_values(column, values), offsets


def text(
    files: Sequence[str],
    *,
    delimiter: str = ",",
    names: Optional[Sequence[str]] = None,
    types: Optional[Mapping[str, str]] = None,
    lists: Optional[Mapping[str, str]] = None,
    quotes: bool = True,
) -> Source:
    """Columns of CSV files, plain or gzip.

    names: those of the columns, if the files have no header line. types: the columns that are
    numbers, and their types; others are texts. lists: the columns that are lists, and the string
    between two elements. An empty field is an absent value, or an empty list. quotes: whether
    fields may be quoted; otherwise a quote is a character like others.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise _invalid("the delimiter is %r; it must be one character, no quote or end", delimiter)
    # This limit is the whole process's. By default it is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_LENGTH))
    style: dict[str, Any] = {"delimiter": delimiter}
    style["quoting"] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    types, lists = types or {}, lists or {}
    header = list(names) if names is not None else _header(files[0], style)
    for name in header:
        if any("\udc80" <= character <= "\udcff" for character in name):
            raise _invalid("%s:1: the header line is not UTF-8 text; is it a CSV file?", files[0])
    for name in [*types, *lists]:
        if name not in header:
            raise _invalid("%s has no column %r; it has %s", files[0], name, ", ".join(header))
    columns = [Column(name, types.get(name, "bytes"), name in lists) for name in header]

    def chunks() -> Iterator[Mapping[str, Any]]:
        for path in files:
            if names is None and _header(path, style) != header:
                raise _invalid("%s has another header line than %s", path, files[0])
            with _open(path) as file:
                reader = csv.reader(file, **style)
                if names is None:
                    next(reader)
                rows: list[list[str]] = []
                for row in _rows(path, reader):
                    if not row:
                        continue
                    if len(row) != len(header):
                        raise _invalid(
                            "%s:%d: the line has %d fields, but the %s %d",
                            path,
                            reader.line_num,
                            len(row),
                            "header has" if names is None else "names are",
                            len(header),
                        )
                    rows.append(row)
                    if len(rows) == _CHUNK_ROWS:
                        yield _text_chunk(path, reader.line_num, columns, lists, rows)
                        rows = []
                if rows:
                    yield _text_chunk(path, reader.line_num, columns, lists, rows)

    return Source(columns, chunks())


def _open(path: str) -> Any:
    # A byte order mark is not part of the first name.
    style: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    return gzip.open(path, "rt", **style) if str(path).endswith(".gz") else open(path, **style)


def _rows(path: str, reader: Any) -> Iterator[list[str]]:
    """The reader's rows. Raises InvalidArgumentError for what it cannot read, by file and line."""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except _DAMAGED as error:
            raise _invalid("%s:%d: %s", path, reader.line_num + 1, error) from error
        yield row


def _header(path: str, style: Mapping[str, Any]) -> list[str]:
    try:
        with _open(path) as file:
            return next(csv.reader(file, **style))
    except _DAMAGED as error:
        raise _invalid("%s:1: %s", path, error) from error
    except StopIteration:
        raise _invalid("%s is empty; its first line must be a header", path) from None
    except OSError as error:
        raise errors.NotFoundError("cannot open %s: %s" % (path, error)) from error


def _text_chunk(
    path: str,
    line: int,
    columns: Sequence[Column],
    lists: Mapping[str, str],
    rows: Sequence[Sequence[str]],
) -> Mapping[str, Any]:
    chunk: dict[str, Any] = {}
    for place, column in enumerate(columns):
        fields = [row[place] for row in rows]
        if column.is_list:
            separator = lists[column.name]
            chunk[column.name] = [
                [_text_value(path, line, column, part) for part in field.split(separator)]
                if field
                else ()
                for field in fields
            ]
        elif column.type == "bytes":
            chunk[column.name] = [field.encode("utf-8", "surrogateescape") for field in fields]
        else:
            chunk[column.name] = [
                _text_value(path, line, column, field) if field else None for field in fields
            ]
    return chunk


def _text_value(path: str, line: int, column: Column, field: str) -> Any:
    if column.type == "bytes":
        return field.encode("utf-8", "surrogateescape")
    try:
        if column.type != "int64":
            return float(field)
        # "007" would become another category.
        if str(int(field)) != field:
            raise ValueError
        return int(field)
    except ValueError:
        raise _invalid(
            "%s, up to line %d: column %r: %r is not a number of the type %s",
            path,
            line,
            column.name,
            field,
            column.type,
        ) from None
