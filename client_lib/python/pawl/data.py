"""Batches that can be repeated: a function of (seed, epoch, step, rank) only.

In SYNC mode a rank that is restarted computes its step again, and servers recognise its pushes by
their place in the step. So the batch must be the same. `Sampler` gives the positions of samples,
also to torch's DataLoader (as `batch_sampler`); `Arrays` gives the samples of arrays.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import sys
import zlib
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    runtime_checkable,
)

import numpy as np

from pawl import _abi, errors


def hash64(values: Any, column: Optional[str] = None) -> np.ndarray:
    """64-bit keys of categories: their XXH64, uint64 in the shape of `values`.

    Args:
      values: str, bytes or integers (which count as decimal text): a list, or an array of NumPy,
        pandas or Arrow. None and missing values are refused. NumPy's arrays of type S and U have
        no zeros at the end of a text.
      column: the name of the column. The keys are then those that the built-in models use for its
        categories (worker/data/feature_key.h), and equal texts of other columns have others.

    Also in the processes of a DataLoader. As torch's keys: `torch.from_numpy(keys.view("int64"))`.
    """
    if np.ma.is_masked(values):
        raise errors.InvalidArgumentError("a category is masked; give it a value, such as ''")
    # NumPy's own types for texts would drop zeros at their ends.
    is_plain = isinstance(values, (str, bytes, list, tuple))
    array = np.array(values, dtype=object) if is_plain else np.asarray(values)
    if array.size == 0:
        return np.empty(array.shape, np.uint64)
    if array.dtype.kind in "iu":
        array = array.astype("S")
    if array.dtype.kind not in "SUO":
        raise errors.InvalidArgumentError(
            "categories have the type %s; they must be str, bytes or integers" % array.dtype
        )
    texts = [_bytes_of(value) for value in array.reshape(-1).tolist()]
    seed = _hashes([_bytes_of(column)], 0)[0] if column is not None else 0
    return _hashes(texts, int(seed)).reshape(array.shape)


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return b"%d" % value
    raise errors.InvalidArgumentError(
        "a category is %r; it must be str, bytes or an integer" % (value,)
    )


def _hashes(texts: list[bytes], seed: int) -> np.ndarray:
    ends = np.cumsum([len(text) for text in texts], dtype=np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    _abi.hash64(b"".join(texts), ends.ctypes.data, len(texts), seed, hashes.ctypes.data)
    return hashes


@runtime_checkable
class Source(Protocol):
    """Training data for Job.steps: batches by step and rank."""

    def step_count(self) -> int:
        """The number of steps in all epochs."""

    def share(self, step: int, rank: int, ranks: int) -> tuple[int, int]:
        """How many samples the rank has in the step, and all ranks together."""

    def batches(self, rank: int, ranks: int, first_step: int) -> Iterator[Any]:
        """The rank's batches from a step on: one for each step in which its share is not 0."""

    # A source may also have identity() -> dict: settings that decide a step's batch. They are saved
    # with the job, and a program that continues it with others is refused.


# As a number of steps: only the end of the data tells.
ENDLESS = 2**62
# How many parts of a batch are searched for an array.
_PARTS_OF_BATCH = 32


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer (client_lib/base/partitioner.h)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _fingerprint(arrays: Sequence[Any]) -> str:
    """Tells other samples from these: a checksum of up to 1,024 of them."""
    places = np.unique(np.linspace(0, len(arrays[0]) - 1, 1024).astype(np.int64))
    checksum = 0
    for array in arrays:
        part = array[places]
        part = part.cpu().numpy() if hasattr(part, "cpu") else np.asarray(part)
        checksum = zlib.crc32(np.ascontiguousarray(part).tobytes(), checksum)
    return "%08x" % checksum


def _samples(array: Any, places: np.ndarray) -> Any:
    """array[places], by the fastest function for its kind."""
    if isinstance(array, np.ndarray):
        return array.take(places, axis=0)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.index_select(0, torch.from_numpy(places).to(array.device))
    return array[places]


class Sampler:
    """The positions of the samples of each step, for one rank at a time.

    In each epoch every sample occurs once, in an order that depends on (seed, epoch) only; it is
    the same for every NumPy. A step takes the next `batch_size` samples, and each rank its share of
    them. The last step of an epoch may be smaller.

    Args:
      length: the number of samples, or something with a length.
      batch_size: samples per step, over all ranks.
      seed: of the order.
      epochs: how often each sample is used.
      shuffle: whether to change the order.
      drop_last: leave out the last step of an epoch if it is smaller.

    As a DataLoader's `batch_sampler` it gives the batches of `rank`; Job.steps sets rank and step.
    """

    def __init__(
        self,
        length: Any,
        batch_size: int,
        *,
        seed: int = 0,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ):
        self.length = length if isinstance(length, int) else len(length)
        if self.length < 1 or batch_size < 1 or epochs < 1:
            raise errors.InvalidArgumentError(
                "Sampler(length=%d, batch_size=%d, epochs=%d): each must be at least 1"
                % (self.length, batch_size, epochs)
            )
        self.batch_size = batch_size
        self.seed = seed
        self.epochs = epochs
        self.shuffle = shuffle
        self._steps_per_epoch = (
            self.length // batch_size if drop_last else -(-self.length // batch_size)
        )
        if self._steps_per_epoch == 0:
            raise errors.InvalidArgumentError(
                "Sampler: drop_last with %d samples leaves no step of %d"
                % (self.length, batch_size)
            )
        self.rank, self.ranks, self.first_step = 0, 1, 0
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def step_count(self) -> int:
        """The number of steps in all epochs."""
        return self._steps_per_epoch * self.epochs

    def share(self, step: int, rank: int, ranks: int) -> tuple[int, int]:
        """How many samples the rank has in the step, and all ranks together."""
        begin, end = self._range(step)
        return self._place(end - begin, rank + 1, ranks) - self._place(
            end - begin, rank, ranks
        ), end - begin

    def identity(self) -> dict[str, Any]:
        """The settings, apart from the number of ranks, that determine a step's samples."""
        return {
            "samples": self.length,
            "batch_size": self.batch_size,
            "data's seed": self.seed,
            "shuffle": self.shuffle,
            "steps per epoch": self._steps_per_epoch,
        }

    def positions(self, step: int, rank: int, ranks: int) -> np.ndarray:
        """The positions of the rank's samples in the step, int64."""
        begin, end = self._range(step)
        count = end - begin
        first = begin + self._place(count, rank, ranks)
        last = begin + self._place(count, rank + 1, ranks)
        if not self.shuffle:
            return np.arange(first, last)
        return self.order_of(self.epoch_of(step))[first:last]

    def set_position(self, rank: int, ranks: int, first_step: int) -> None:
        """Sets the position of the next iterator."""
        self.rank, self.ranks, self.first_step = rank, ranks, first_step

    def __iter__(self) -> Iterator[list[int]]:
        # The arguments are taken now: the next iterator may have another position.
        return self._batches(self.rank, self.ranks, self.first_step)

    def __len__(self) -> int:
        return self.step_count()

    def _batches(self, rank: int, ranks: int, first_step: int) -> Iterator[list[int]]:
        for step in range(first_step, self.step_count()):
            positions = self.positions(step, rank, ranks).tolist()
            # Job.steps asks for no batch where the rank's share is 0.
            if positions:
                yield positions

    def _range(self, step: int) -> tuple[int, int]:
        begin = step % self._steps_per_epoch * self.batch_size
        return begin, min(begin + self.batch_size, self.length)

    @staticmethod
    def _place(count: int, rank: int, ranks: int) -> int:
        return count * rank // ranks

    def epoch_of(self, step: int) -> int:
        """The number of the step's epoch, from 0."""
        return step // self._steps_per_epoch

    def order_of(self, epoch: int) -> np.ndarray:
        """All positions, in the order of an epoch."""
        if self._order[0] != epoch:
            positions = np.arange(self.length, dtype=np.uint64)
            if not self.shuffle:
                order = positions.astype(np.int64)
            else:
                start = _mix(np.array([self.seed, epoch + 1], np.uint64))
                with np.errstate(over="ignore"):
                    salt = _mix(start[0] + np.uint64(3) * start[1])
                order = np.argsort(_mix(_mix(positions) + salt), kind="stable")
            self._order = (epoch, order)
        return self._order[1]


class Arrays:
    """The samples of arrays or tensors of one length, as tuples of their parts.

    Args:
      arrays: NumPy arrays or torch tensors; the first axis numbers the samples.
      batch_size, seed, epochs, shuffle, drop_last: as for Sampler.
      collate: makes a batch of the parts; default: their tuple.
    """

    def __init__(
        self,
        *arrays: Any,
        batch_size: int,
        seed: int = 0,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        collate: Optional[Callable[..., Any]] = None,
    ):
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise errors.InvalidArgumentError(
                "Arrays needs arrays of one length, not of %s" % sorted(lengths)
            )
        self._arrays = arrays
        self._collate = collate
        self.sampler = Sampler(
            lengths.pop(),
            batch_size,
            seed=seed,
            epochs=epochs,
            shuffle=shuffle,
            drop_last=drop_last,
        )
        self._fingerprint = _fingerprint(arrays)

    def step_count(self) -> int:
        """The number of steps in all epochs."""
        return self.sampler.step_count()

    def share(self, step: int, rank: int, ranks: int) -> tuple[int, int]:
        """How many samples the rank has in the step, and all ranks together."""
        return self.sampler.share(step, rank, ranks)

    def identity(self) -> dict[str, Any]:
        """The settings, apart from the number of ranks, that determine a step's batch."""
        return {**self.sampler.identity(), "checksum of the data": self._fingerprint}

    def batches(self, rank: int, ranks: int, first_step: int) -> Iterator[Any]:
        """The rank's batches from a step on."""
        for step in range(first_step, self.step_count()):
            places = self.sampler.positions(step, rank, ranks)
            if len(places) == 0:
                continue
            parts = tuple(_samples(array, places) for array in self._arrays)
            yield self._collate(*parts) if self._collate else parts


class _Loader:
    """A DataLoader whose batch_sampler is a Sampler."""

    def __init__(self, loader: Any, sampler: Sampler):
        self._loader = loader
        self._sampler = sampler

    def step_count(self) -> int:
        return self._sampler.step_count()

    def share(self, step: int, rank: int, ranks: int) -> tuple[int, int]:
        return self._sampler.share(step, rank, ranks)

    def identity(self) -> dict[str, Any]:
        return self._sampler.identity()

    def batches(self, rank: int, ranks: int, first_step: int) -> Iterator[Any]:
        import torch  # pylint: disable=import-outside-toplevel  # a DataLoader is torch's

        self._sampler.set_position(rank, ranks, first_step)
        # A new iterator draws a seed from the generator of the rank that computes.
        with torch.random.fork_rng(devices=[]):
            return iter(self._loader)


class Stream:
    """Any iterable: one pass, whose batches go to the ranks in the order in which they ask."""

    def __init__(self, iterable: Any):
        self._iterator = iter(iterable)
        self._given_back: collections.deque[Any] = collections.deque()
        # The samples of the latest batch; 0: there was none.
        self.batch_samples = 0

    def step_count(self) -> int:
        """Only the end of the iterable tells."""
        return ENDLESS

    def share(self, step: int, rank: int, ranks: int) -> tuple[int, int]:
        """In batches: a batch tells its samples only when it is read."""
        del step, rank
        return 1, ranks

    def batches(self, rank: int, ranks: int, first_step: int) -> Iterator[Any]:
        """The same for all ranks."""
        del rank, ranks, first_step
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._given_back.popleft() if self._given_back else next(self._iterator)
        self.batch_samples = samples_of(batch)
        return batch

    def give_back(self, batch: Any) -> None:
        """A rank that leaves has not used its batch: another one gets it."""
        self._given_back.append(batch)


def samples_of(batch: Any) -> int:
    """The length of a batch's first array or tensor; 1 if there is none."""
    return _length(batch) or 1


def _length(batch: Any) -> Optional[int]:
    try:
        shape = getattr(batch, "shape", None)
    except Exception:  # Torch's nested tensors have none.
        return None
    if isinstance(shape, tuple):
        return int(shape[0]) if shape else None
    parts: Iterable[Any] = ()
    if isinstance(batch, (list, tuple)):
        parts = batch
    elif isinstance(batch, Mapping):
        parts = batch.values()
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = (getattr(batch, field.name, None) for field in dataclasses.fields(batch))
    lengths = map(_length, itertools.islice(parts, _PARTS_OF_BATCH))
    return next((length for length in lengths if length is not None), None)


def source_of(data: Any, mode: str) -> Source:
    """Returns the batches of Job.steps.

    Raises InvalidArgumentError for data that the mode cannot repeat.
    """
    if isinstance(data, Source):
        return data
    sampler = getattr(data, "batch_sampler", None)
    if isinstance(sampler, Sampler):
        if getattr(data, "persistent_workers", False):
            raise errors.InvalidArgumentError(
                "a DataLoader with persistent_workers has one iterator, and each rank needs its "
                "own: leave persistent_workers out"
            )
        return _Loader(data, sampler)
    if mode != "SYNC":
        return Stream(data)
    raise errors.InvalidArgumentError(
        "a SYNC job cannot train on %s: a rank that is restarted must see the same batches again. "
        "Use pawl.data.Arrays, a DataLoader with batch_sampler=pawl.data.Sampler(...), or a class "
        "with the methods of pawl.data.Source; or run the job in ASYNC or BOUNDED mode"
        % type(data).__name__
    )


def __getattr__(name: str) -> Any:
    # parquet.py imports this module.
    if name == "Parquet":
        from pawl.parquet import Parquet  # pylint: disable=import-outside-toplevel

        return Parquet
    raise AttributeError("module 'pawl.data' has no attribute %r" % name)
