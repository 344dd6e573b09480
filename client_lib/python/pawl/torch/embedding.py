"""Embeddings whose rows are on the servers, in the shapes of torch.nn and TorchRec."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Iterable, Optional

import numpy as np
import torch
from torch.nn import functional

from pawl import errors, specs
from pawl.torch.lookup import (
    Fetch,
    InitialRows,
    LookupModule,
    Rows,
    TableHandle,
    Wanted,
    device_of,
    numpy_keys,
)
from pawl.torch.pooling import Bags, is_supported, pool, pool_bags

_DEFAULT_INIT = specs.Normal(0.0, 0.01)


def _padding_of(keys: np.ndarray, padding_idx: Optional[int]) -> Optional[np.ndarray]:
    if padding_idx is None:
        return None
    padding = keys == padding_idx
    return padding if padding.any() else None


class _OneTable(LookupModule):
    """A module with one table, whose constructor takes its name and dim first."""

    @classmethod
    def from_pretrained(
        cls, name: str, rows: Any, keys: Any = None, *, slots: Any = None, **options: Any
    ) -> Any:
        """A module whose table begins with these rows, which the job's first step sets.

        Args:
          name: the table's.
          rows: a tensor or array, (n, dim).
          keys: n distinct integers; default: 0 to n - 1.
          slots: the optimizer's state of each row; default: its initial value.
          options: as for the constructor.

        All processes must give the same. With SparseOptimizer, its `assigns` tells who sets them.
        """
        dim = int(rows.shape[1])
        module = cls(name, dim, **options)  # type: ignore[call-arg]
        keys = np.arange(len(rows)) if keys is None else keys
        module.handles[0].initial = InitialRows.of(name, dim, keys, rows, slots)
        return module


def gather(rows: Rows, places: np.ndarray) -> torch.Tensor:
    """The rows at these places: (number of places, dim)."""
    leaf = rows.leaf
    assert leaf is not None, "rows are fetched before they are gathered"
    if is_supported([leaf], None):
        bags = Bags(places, None, 1, places.size, padding_row=rows.padding_row)
        return pool_bags([bags], [leaf], places.size)
    indices = torch.from_numpy(places).to(leaf.device)
    return functional.embedding(indices, leaf, padding_idx=rows.padding_row)


class Embedding(_OneTable):
    """torch.nn.Embedding without a number of rows: any 64-bit key has a row.

    Args:
      name: the table's, unique in the job.
      dim: numbers per row.
      optimizer: how servers update rows; default: Adagrad with torch's defaults.
      init: the values of a row before its first update.
      padding_idx: a key that has no row: it reads as 0 and is not trained.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        *,
        optimizer: Optional[specs.Optimizer] = None,
        init: specs.Initializer = _DEFAULT_INIT,
        padding_idx: Optional[int] = None,
    ):
        super().__init__()
        self.padding_idx = padding_idx
        self.handles.append(TableHandle(name, dim, optimizer or specs.Adagrad(), init))

    def extra_repr(self) -> str:
        return "%r, dim=%d" % (self.handles[0].name, self.handles[0].dim)

    def wanted(self, *inputs: Any) -> list[Wanted]:
        keys = numpy_keys(inputs[0])
        return [Wanted(self.handles[0], keys, _padding_of(keys, self.padding_idx))]

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """Rows of shape (*keys' shape, dim)."""
        rows, inverse = self.fetch(device_of(keys), keys).of(0)
        return gather(rows, inverse).view(*keys.shape, rows.dim)


class EmbeddingBag(_OneTable):
    """torch.nn.EmbeddingBag without a number of rows.

    Args:
      name, dim, optimizer, init, padding_idx: as for Embedding.
      mode: "sum" or "mean" over the keys of a bag. An empty bag gives 0.
      include_last_offset: as in torch.nn.EmbeddingBag.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        *,
        mode: str = "sum",
        optimizer: Optional[specs.Optimizer] = None,
        init: specs.Initializer = _DEFAULT_INIT,
        padding_idx: Optional[int] = None,
        include_last_offset: bool = False,
    ):
        super().__init__()
        if mode not in ("sum", "mean"):
            raise errors.InvalidArgumentError("mode is %r; choose from sum, mean" % mode)
        self.mode = mode
        self.padding_idx = padding_idx
        self.include_last_offset = include_last_offset
        self.handles.append(TableHandle(name, dim, optimizer or specs.Adagrad(), init))

    def extra_repr(self) -> str:
        return "%r, dim=%d, mode=%r" % (self.handles[0].name, self.handles[0].dim, self.mode)

    def wanted(self, *inputs: Any) -> list[Wanted]:
        keys = numpy_keys(inputs[0])
        return [Wanted(self.handles[0], keys, _padding_of(keys, self.padding_idx))]

    def forward(
        self,
        keys: torch.Tensor,
        offsets: Optional[torch.Tensor] = None,
        per_sample_weights: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """One row per bag: a row of keys of two dimensions, or keys from one offset to the next."""
        rows, inverse = self.fetch(device_of(keys), keys).of(0)
        ends = self._ends(keys, offsets)
        if ends is not None and is_supported([rows.leaf], per_sample_weights):
            samples = len(ends) - 1
            bags = Bags(inverse, ends, 1, samples, self.mode, rows.padding_row)
            return pool_bags([bags], [rows.leaf], samples)
        return functional.embedding_bag(
            torch.from_numpy(inverse).to(keys.device).view(keys.shape),
            rows.leaf,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=rows.padding_row,
        )

    def _ends(self, keys: torch.Tensor, offsets: Optional[torch.Tensor]) -> Optional[np.ndarray]:
        """Where each bag begins, and the end of the last; None: what torch may have to refuse."""
        if keys.dim() == 2 and offsets is None:
            return np.arange(len(keys) + 1, dtype=np.int64) * keys.shape[1]
        if keys.dim() != 1 or offsets is None or offsets.dim() != 1:
            return None
        begins = numpy_keys(offsets)
        if begins.size > 0 and begins[0] != 0:
            return None
        return begins if self.include_last_offset else np.append(begins, len(keys))


@dataclasses.dataclass
class EmbeddingBagConfig:
    """A table of an EmbeddingBagCollection; TorchRec's own works too.

    Args:
      name: the table's.
      embedding_dim: numbers per row.
      feature_names: the features that look up in it.
      pooling: "SUM" or "MEAN", or TorchRec's PoolingType.
      optimizer, init: of this table; default: the collection's.
    """

    name: str
    embedding_dim: int
    feature_names: list[str]
    pooling: Any = "SUM"
    optimizer: Optional[specs.Optimizer] = None
    init: Optional[specs.Initializer] = None


@dataclasses.dataclass
class EmbeddingConfig:
    """A table of an EmbeddingCollection. Arguments as for EmbeddingBagConfig."""

    name: str
    embedding_dim: int
    feature_names: list[str]
    optimizer: Optional[specs.Optimizer] = None
    init: Optional[specs.Initializer] = None


class KeyedTensor:
    """The result of an EmbeddingBagCollection, with the methods of TorchRec's."""

    def __init__(self, keys: list[str], dims: list[int], values: torch.Tensor):
        self._keys, self._dims, self._values = keys, dims, values

    def keys(self) -> list[str]:
        """The features."""
        return self._keys

    def values(self) -> torch.Tensor:
        """All features side by side: (batch, sum of their dims)."""
        return self._values

    def length_per_key(self) -> list[int]:
        """Each feature's width."""
        return self._dims

    def to_dict(self) -> dict[str, torch.Tensor]:
        """By feature: (batch, dim)."""
        return dict(zip(self._keys, self._values.split(self._dims, dim=1)))

    def __getitem__(self, key: str) -> torch.Tensor:
        return self.to_dict()[key]


class JaggedTensor:
    """Rows of one feature, some for each sample, with the methods of TorchRec's."""

    def __init__(self, values: torch.Tensor, lengths: torch.Tensor, offsets: torch.Tensor):
        self._values, self._lengths, self._offsets = values, lengths, offsets

    def values(self) -> torch.Tensor:
        """The rows of all samples, one after the other."""
        return self._values

    def lengths(self) -> torch.Tensor:
        """How many rows each sample has."""
        return self._lengths

    def offsets(self) -> torch.Tensor:
        """Where each sample's rows begin, and the end of the last."""
        return self._offsets


class KeyedJaggedTensor:
    """Keys of several features, some for each sample; TorchRec's own works too.

    Args:
      keys: the features.
      values: the keys, feature by feature, sample by sample.
      lengths: how many keys each sample of each feature has.
      weights: one for each key, or None.
    """

    def __init__(
        self,
        keys: list[str],
        values: torch.Tensor,
        lengths: torch.Tensor,
        weights: Optional[torch.Tensor] = None,
    ):
        self._keys, self._values, self._lengths, self._weights = keys, values, lengths, weights
        zero = torch.zeros(1, dtype=torch.int64, device=lengths.device)
        self._offsets = torch.cat([zero, lengths.to(torch.int64).cumsum(0)])

    def keys(self) -> list[str]:
        """The features."""
        return self._keys

    def values(self) -> torch.Tensor:
        """The keys."""
        return self._values

    def lengths(self) -> torch.Tensor:
        """How many keys each sample of each feature has."""
        return self._lengths

    def offsets(self) -> torch.Tensor:
        """Where the keys of each sample of each feature begin, and the end of the last."""
        return self._offsets

    def weights_or_none(self) -> Optional[torch.Tensor]:
        """The weights of the keys."""
        return self._weights

    def stride(self) -> int:
        """Samples in the batch."""
        return len(self._lengths) // len(self._keys)


def names_of_results(tables: Iterable[Any]) -> list[list[str]]:
    """TorchRec's names of the results: a feature in several tables is named feature@table."""
    counts: dict[str, int] = {}
    for table in tables:
        for feature in table.feature_names:
            counts[feature] = counts.get(feature, 0) + 1
    return [
        ["%s@%s" % (f, table.name) if counts[f] > 1 else f for f in table.feature_names]
        for table in tables
    ]


def _initializer_of(table: Any, default: specs.Initializer) -> specs.Initializer:
    """A config's own initializer, that of TorchRec's bounds, or the default."""
    own = getattr(table, "init", None)
    if own is not None:
        return own
    bounds: list[Any] = [getattr(table, "weight_init_" + name, None) for name in ("min", "max")]
    # TorchRec's configs have one that draws uniformly between the bounds, if they are given none.
    function = getattr(table, "init_fn", None)
    is_given = function is not None
    if isinstance(function, functools.partial) and function.func is torch.nn.init.uniform_:
        drawn = [table.get_weight_init_min(), table.get_weight_init_max()]
        is_given = [function.keywords.get(name) for name in ("a", "b")] != drawn
    if is_given:
        raise errors.InvalidArgumentError(
            "table %r has an init_fn, and servers draw the rows: give the config an attribute "
            "`init` instead, such as pawl.Normal(0.0, 0.01)" % table.name
        )
    if bounds == [None, None]:
        return default
    if None in bounds:
        bounds = [table.get_weight_init_min(), table.get_weight_init_max()]
    return specs.Uniform(*bounds)


class _Collection(LookupModule):
    """The part that both collections share: lookups of the features of a KeyedJaggedTensor."""

    def __init__(
        self,
        tables: list[Any],
        optimizer: Optional[specs.Optimizer],
        init: specs.Initializer,
    ):
        super().__init__()
        names = [table.name for table in tables]
        if len(set(names)) != len(names) or not names:
            raise errors.InvalidArgumentError(
                "tables need one name each, and at least one table; they are %s" % names
            )
        self._tables = tables
        self._feature_names = names_of_results(tables)
        # (table, feature) of each lookup.
        self._lookups = [
            (number, feature)
            for number, table in enumerate(tables)
            for feature in table.feature_names
        ]
        for table in tables:
            self.handles.append(
                TableHandle(
                    table.name,
                    table.embedding_dim,
                    getattr(table, "optimizer", None) or optimizer or specs.Adagrad(),
                    _initializer_of(table, init),
                )
            )

    def extra_repr(self) -> str:
        return ", ".join("%s: %d" % (table.name, table.embedding_dim) for table in self._tables)

    def wanted(self, *inputs: Any) -> list[Wanted]:
        features = inputs[0]
        places = {name: place for place, name in enumerate(features.keys())}
        values = numpy_keys(features.values())
        ends = self._ends(features)
        wanted = []
        for table, feature in self._lookups:
            if feature not in places:
                raise errors.InvalidArgumentError(
                    "the batch has no feature %r of table %r; it has %s"
                    % (feature, self._tables[table].name, ", ".join(places))
                )
            place = places[feature]
            wanted.append(
                Wanted(self.handles[table], values[ends[place] : ends[place + 1]])
            )
        return wanted

    @staticmethod
    def _ends(features: Any) -> np.ndarray:
        """Where each feature's keys begin, and the end of the last."""
        offsets = features.offsets().detach().cpu().numpy()
        return offsets[:: features.stride()] if features.stride() else np.zeros(
            len(features.keys()) + 1, np.int64
        )


class EmbeddingBagCollection(_Collection):
    """TorchRec's EmbeddingBagCollection, with its tables on the servers.

    Args:
      tables: EmbeddingBagConfig, or TorchRec's.
      optimizer, init: of tables that name none.
      is_weighted: features have a weight for each key.
    """

    def __init__(
        self,
        tables: list[Any],
        *,
        optimizer: Optional[specs.Optimizer] = None,
        init: specs.Initializer = _DEFAULT_INIT,
        is_weighted: bool = False,
    ):
        super().__init__(tables, optimizer, init)
        self._is_weighted = is_weighted
        self._modes = []
        for table in tables:
            pooling = getattr(table.pooling, "value", table.pooling)
            if pooling not in ("SUM", "MEAN"):
                raise errors.InvalidArgumentError(
                    "table %r has the pooling %r; choose from SUM, MEAN" % (table.name, pooling)
                )
            self._modes.append(pooling.lower())
        self._keys = [name for names in self._feature_names for name in names]
        self._dims = [tables[table].embedding_dim for table, _ in self._lookups]
        # One call of torch serves all features if nothing tells them apart.
        self._is_uniform = len(set(self._dims)) == 1 and len(set(self._modes)) == 1

    def embedding_bag_configs(self) -> list[Any]:
        """The tables."""
        return self._tables

    def is_weighted(self) -> bool:
        """Whether features have a weight for each key."""
        return self._is_weighted

    def forward(self, features: Any) -> KeyedTensor:
        """The pooled rows of each feature: (batch, dim)."""
        fetch = self.fetch(features.values().device, features)
        places = {name: place for place, name in enumerate(features.keys())}
        places_of_lookups = [places[feature] for _, feature in self._lookups]
        weights = features.weights_or_none() if self._is_weighted else None
        leaves = [rows.leaf for rows in fetch.rows]
        if is_supported(leaves, weights):
            bags = self._bags(fetch, features, places_of_lookups)
            pooled = pool_bags(bags, leaves, features.stride())
        else:
            pooled = self._pooled_by_torch(fetch, features, places_of_lookups, weights)
        return KeyedTensor(self._keys, self._dims, pooled)

    def _bags(self, fetch: Fetch, features: Any, places: list[int]) -> list[Bags]:
        """The bags of the lookups; `places`: where the batch has the feature of each."""
        batch = features.stride()
        offsets = numpy_keys(features.offsets())
        if self._is_uniform and places == list(range(len(features.keys()))):
            inverse = fetch.rows[0].places
            if inverse is None:
                inverse = np.concatenate([fetch.of(lookup)[1] for lookup in range(len(places))])
            return [Bags(inverse, offsets, len(places), batch, self._modes[0])]
        bags = []
        column = 0
        for lookup, (table, _) in enumerate(self._lookups):
            own = offsets[places[lookup] * batch : (places[lookup] + 1) * batch + 1]
            rows, inverse = fetch.of(lookup)
            bags.append(
                Bags(
                    inverse,
                    own - own[0],
                    1,
                    batch,
                    self._modes[table],
                    rows=fetch.rows.index(rows),
                    column=column,
                )
            )
            column += rows.dim
        return bags

    def _pooled_by_torch(
        self, fetch: Fetch, features: Any, places: list[int], weights: Optional[torch.Tensor]
    ) -> torch.Tensor:
        batch = features.stride()
        offsets = features.offsets().to(torch.int64)
        parts = []
        for lookup, (table, _) in enumerate(self._lookups):
            own = offsets[places[lookup] * batch : (places[lookup] + 1) * batch + 1]
            rows, inverse = fetch.of(lookup)
            assert rows.leaf is not None, "rows are fetched before they are pooled"
            parts.append(
                pool(
                    rows.leaf,
                    torch.from_numpy(inverse).to(offsets.device),
                    own - own[0],
                    None if weights is None else weights[int(own[0]) : int(own[-1])],
                    self._modes[table],
                )
            )
        return torch.cat(parts, dim=1)


class EmbeddingCollection(_Collection):
    """TorchRec's EmbeddingCollection (rows that are not pooled), with its tables on the servers.

    Args:
      tables: EmbeddingConfig, or TorchRec's.
      optimizer, init: of tables that name none.
    """

    def __init__(
        self,
        tables: list[Any],
        *,
        optimizer: Optional[specs.Optimizer] = None,
        init: specs.Initializer = _DEFAULT_INIT,
    ):
        super().__init__(tables, optimizer, init)

    def embedding_configs(self) -> list[Any]:
        """The tables."""
        return self._tables

    def forward(self, features: Any) -> dict[str, JaggedTensor]:
        """By feature: the rows of its keys."""
        fetch = self.fetch(features.values().device, features)
        places = {name: place for place, name in enumerate(features.keys())}
        batch = features.stride()
        offsets = features.offsets().to(torch.int64)
        names = [name for names in self._feature_names for name in names]
        result = {}
        for lookup, (_, feature) in enumerate(self._lookups):
            own = offsets[places[feature] * batch : (places[feature] + 1) * batch + 1]
            rows, inverse = fetch.of(lookup)
            values = gather(rows, inverse)
            result[names[lookup]] = JaggedTensor(values, own[1:] - own[:-1], own - own[0])
        return result
