"""Batches of Parquet files that are larger than memory, in an order that can be repeated."""

from __future__ import annotations

import errno
import glob
import zlib
from typing import Any, Callable, Iterator, Optional, Sequence

import numpy as np

from pawl import errors
from pawl.data import Sampler

# Parts of a window that other ranks' steps may need: a rank may be a step behind.
_WINDOWS_KEPT = 2


def _import_pyarrow() -> Any:
    try:
        import pyarrow  # pylint: disable=import-outside-toplevel
        import pyarrow.compute  # pylint: disable=import-outside-toplevel
        import pyarrow.parquet  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise errors.FailedPreconditionError(
            "pawl.data.Parquet needs the package pyarrow: pip install pyarrow (%s)" % error
        ) from error
    return pyarrow


class Parquet:
    """The samples of Parquet files, as dictionaries of arrays by column.

    In each epoch every sample occurs once. The order depends on (seed, epoch) only: row groups are
    shuffled, the next ones that together have `window_rows` samples are read, and their samples are
    shuffled. A process holds two windows, whatever the size of the files. Each process reads whole
    windows, also where it hosts few ranks.

    A column of lists becomes (values, offsets): sample i has values[offsets[i]:offsets[i + 1]].

    Args:
      paths: a path or pattern ("day_*/part-*.parquet"), or several. With `filesystem`: paths only.
      batch_size: samples per step, over all ranks.
      columns: those to read; default: all.
      collate: makes a batch of the dictionary; default: the dictionary.
      seed, epochs, shuffle, drop_last: as for Sampler.
      window_rows: how many samples are shuffled with each other.
      filesystem: of pyarrow or fsspec, for files elsewhere.
    """

    def __init__(
        self,
        paths: Any,
        batch_size: int,
        *,
        columns: Optional[Sequence[str]] = None,
        collate: Optional[Callable[[dict[str, Any]], Any]] = None,
        seed: int = 0,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        window_rows: int = 262144,
        filesystem: Any = None,
    ):
        pyarrow = _import_pyarrow()
        if window_rows < 1:
            raise errors.InvalidArgumentError("Parquet: window_rows is %d" % window_rows)
        self._paths = _expand(paths, filesystem)
        self._columns = None if columns is None else list(columns)
        self._collate = collate
        self._filesystem = filesystem
        self._window_rows = window_rows
        # For each row group: file, number in the file, rows.
        self._groups: list[tuple[int, int, int]] = []
        checksum = 0
        for number, path in enumerate(self._paths):
            try:
                with pyarrow.parquet.ParquetFile(path, filesystem=filesystem) as file:
                    metadata = file.metadata
                    missing = sorted(set(self._columns or ()) - set(file.schema_arrow.names))
            except (OSError, ValueError) as error:
                kind = _kind_of(error, is_local=filesystem is None)
                raise kind("%s cannot be read as Parquet: %s" % (path, error)) from error
            if missing:
                raise errors.InvalidArgumentError(
                    "%s has no column %s" % (path, ", ".join(map(repr, missing)))
                )
            for group in range(metadata.num_row_groups):
                part = metadata.row_group(group)
                if part.num_rows > 0:
                    self._groups.append((number, group, part.num_rows))
                described = "%d %d %d;" % (number, part.num_rows, part.total_byte_size)
                checksum = zlib.crc32(described.encode(), checksum)
        if not self._groups:
            raise errors.InvalidArgumentError("%s have no samples" % ", ".join(self._paths))
        self._fingerprint = "%08x" % checksum
        # Positions of samples in the epoch's order of row groups; shuffled window by window below.
        self._sampler = Sampler(
            sum(rows for _, _, rows in self._groups),
            batch_size,
            seed=seed,
            epochs=epochs,
            shuffle=False,
            drop_last=drop_last,
        )
        self._seed, self._shuffle = seed, shuffle
        # The epoch of _windows and _ends.
        self._planned = -1
        # For each window of an epoch its row groups, and the number of samples up to its end.
        self._windows: list[list[tuple[int, int, int]]] = []
        self._ends = np.empty(0, np.int64)
        # {(epoch, window): its samples}, the latest last.
        self._read: dict[tuple[int, int], Any] = {}

    def __len__(self) -> int:
        """The number of samples."""
        return self._sampler.length

    def step_count(self) -> int:
        """The number of steps in all epochs."""
        return self._sampler.step_count()

    def share(self, step: int, rank: int, ranks: int) -> tuple[int, int]:
        """How many samples the rank has in the step, and all ranks together."""
        return self._sampler.share(step, rank, ranks)

    def identity(self) -> dict[str, Any]:
        """The settings, apart from the number of ranks, that determine a step's batch."""
        return {
            **self._sampler.identity(),
            "data's seed": self._seed,
            "shuffle": self._shuffle,
            "window_rows": self._window_rows,
            "sizes of the row groups": self._fingerprint,
        }

    def batches(self, rank: int, ranks: int, first_step: int) -> Iterator[Any]:
        """The rank's batches from a step on."""
        for step in range(first_step, self.step_count()):
            if self.share(step, rank, ranks)[0] == 0:
                continue
            batch = self.batch(step, rank, ranks)
            yield self._collate(batch) if self._collate else batch

    def batch(self, step: int, rank: int, ranks: int) -> dict[str, Any]:
        """The rank's samples in a step."""
        epoch = self._sampler.epoch_of(step)
        self._plan(epoch)
        positions = self._sampler.positions(step, rank, ranks)
        places = np.searchsorted(self._ends, positions, side="right")
        # A rank may have no sample in an epoch's last step; the columns' types come from a window.
        parts = [] if len(positions) else [self._window(epoch, 0).slice(0, 0)]
        for number in np.unique(places):
            window = self._window(epoch, int(number))
            first = self._ends[number] - window.num_rows
            parts.append(window.take(positions[places == number] - first))
        table = _import_pyarrow().concat_tables(parts)
        return {name: _to_numpy(name, table.column(name)) for name in table.column_names}

    def _plan(self, epoch: int) -> None:
        """Divides the epoch's row groups into windows."""
        if self._planned == epoch:
            return
        order = np.arange(len(self._groups))
        if self._shuffle:
            order = Sampler(len(order), len(order), seed=self._seed).order_of(epoch)
        self._windows, ends = [], []
        rows = self._window_rows
        for place in order:
            if rows >= self._window_rows:
                self._windows.append([])
                ends.append(0)
                rows = 0
            self._windows[-1].append(self._groups[place])
            rows += self._groups[place][2]
            ends[-1] = rows
        self._ends = np.cumsum(ends)
        self._planned = epoch

    def _window(self, epoch: int, number: int) -> Any:
        """The samples of a window of the planned epoch, shuffled, as a table of pyarrow."""
        found = self._read.get((epoch, number))
        if found is not None:
            return found
        while len(self._read) >= _WINDOWS_KEPT:
            del self._read[next(iter(self._read))]
        pyarrow = _import_pyarrow()
        tables = []
        for path, group, rows in self._windows[number]:
            with pyarrow.parquet.ParquetFile(
                self._paths[path], filesystem=self._filesystem
            ) as file:
                table = file.read_row_group(group, columns=self._columns)
            if table.num_rows != rows:
                raise errors.DataLossError(
                    "%s has changed while it was read: row group %d has %d rows, had %d"
                    % (self._paths[path], group, table.num_rows, rows)
                )
            tables.append(table)
        table = pyarrow.concat_tables(tables).combine_chunks()
        if self._shuffle:
            seed = (self._seed * 1000003 + number + 1) % 2**64
            order = Sampler(table.num_rows, table.num_rows, seed=seed).order_of(epoch)
            table = table.take(order)
        self._read[epoch, number] = table
        return table


def _kind_of(error: Exception, is_local: bool) -> type[errors.Error]:
    """The type for a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return errors.NotFoundError
    if isinstance(error, PermissionError):
        return errors.PermissionDeniedError
    if not isinstance(error, OSError) or error.errno in (errno.EISDIR, errno.ENOTDIR):
        return errors.InvalidArgumentError
    # If an error of a local file has no number of the system, pyarrow has read something that is
    # not Parquet. Object stores that are away give no number either.
    if is_local and error.errno is None:
        return errors.InvalidArgumentError
    return errors.UnavailableError


def _expand(paths: Any, filesystem: Any) -> list[str]:
    """Sorted, so that the order does not depend on the folder's."""
    given = [paths] if isinstance(paths, str) or not isinstance(paths, Sequence) else paths
    found: list[str] = []
    for path in map(str, given):
        is_pattern = filesystem is None and glob.has_magic(path)
        matching = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        if not matching:
            raise errors.NotFoundError("no file matches %s" % path)
        found += matching
    return found


def _check_no_nulls(name: str, array: Any) -> None:
    if array.null_count:
        raise errors.InvalidArgumentError(
            "column %r has %d empty values; replace them in the files" % (name, array.null_count)
        )


def _to_numpy(name: str, column: Any) -> Any:
    """An array, or (values, offsets) of a column of lists."""
    pyarrow = _import_pyarrow()
    _check_no_nulls(name, column)
    array = column.combine_chunks()
    if isinstance(array, pyarrow.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pyarrow.array([], array.type)
    if pyarrow.types.is_fixed_size_list(array.type):
        values = array.flatten()
        _check_no_nulls(name, values)
        offsets = np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
        return values.to_numpy(zero_copy_only=False), offsets
    if pyarrow.types.is_list(array.type) or pyarrow.types.is_large_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.flatten()
        _check_no_nulls(name, values)
        return values.to_numpy(zero_copy_only=False), offsets - offsets[0]
    # Numbers may be a read-only view, which torch.from_numpy warns of.
    return array.to_numpy(zero_copy_only=False, writable=True)
