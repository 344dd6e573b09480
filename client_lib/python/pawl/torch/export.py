"""Models as files, and as modules that predict without a server.

An exported folder has

    model.json              what the model is made of
    dense.safetensors       parameters and buffers by their names in the model's state_dict
    TABLE.safetensors       for each table: `keys`, uint64 (n,), ascending, and `rows`,
                            float32 (n, dim). In file names, characters other than letters, digits,
                            "_" and "-" become "."

model.json is an object. Readers ignore unknown fields.

    format, version         "pawl-torch-model", 1
    pawl, job               the version that has written it, and the job's name
    seed                    the job's, of initial values
    dense                   the name of the file
    modules                 for each module of pawl.torch: its path in the model, its type, the
                            names of its tables, and its settings under the names of its arguments
    tables                  for each table: name, file, number of rows, dim, and initializer
                            (pawl.Initializer as an object), which gives the rows of unknown keys
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import shutil
from typing import Any, Mapping, Optional

import numpy as np
import torch
from torch.nn import functional

import pawl
from pawl import errors, initial_values, safetensors
from pawl.client import Client
from pawl.torch import embedding, pooling
from pawl.torch.lookup import LookupModule, TableHandle
from pawl.torch.optimizer import all_parameters, lookup_modules, table_name
from pawl.torch.state import client_of, sorted_rows, state_dict, wait_for_version

_MODEL_FILE = "model.json"
_DENSE_FILE = "dense.safetensors"
_FORMAT = "pawl-torch-model"
_VERSION = 1
# Files of `pawlctl export`.
_CHECKPOINT_FORMAT = "pawl-model"


class _KeyIndex(torch.nn.Module):
    """Rows under keys: what Embedding and EmbeddingBag below add to those of torch.nn.

    After the n rows that have keys the weight has two more: what every unknown key reads, and 0 for
    the padding key.
    """

    weight: torch.nn.Parameter
    keys: torch.Tensor

    def set_rows(self, table: "_Table", padding_idx: Optional[int]) -> None:
        """Fills the weight, and the index of keys."""
        keys = torch.from_numpy(np.array(table.keys).view(np.int64))
        order = torch.argsort(keys)
        self.register_buffer("keys", keys[order])
        self.padding_key = padding_idx
        self._initial = table.initial
        with torch.no_grad():
            self.weight[: len(keys)] = torch.from_numpy(np.array(table.rows))[order]
            self.weight[len(keys) :] = 0
            if table.initial is not None and initial_values.is_constant(table.initial[0]):
                unknown = table.initial_rows(np.zeros(1, np.uint64))
                self.weight[len(keys)] = torch.from_numpy(unknown)[0]
                self._initial = None
        self.weight.requires_grad_(False)

    def find(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Rows, the place of each key in them, and the place of the padding key's row."""
        count = len(self.keys)
        if keys.dtype not in (torch.int64, torch.int32):
            raise errors.InvalidArgumentError(
                "keys have the type %s; they must be torch.int64 or torch.int32" % keys.dtype
            )
        keys = keys.to(torch.int64).contiguous()
        if count:
            places = torch.searchsorted(self.keys, keys).clamp_(max=count - 1)
            places.masked_fill_(self.keys[places] != keys, count)
        else:
            places = torch.zeros_like(keys)
        if self.padding_key is not None:
            places[keys == self.padding_key] = count + 1
        unknown = places == count
        if self._initial is None or not unknown.any():
            return self.weight, places, count + 1
        # The rows of this batch only: the table may be large.
        used, inverse = torch.unique(places, return_inverse=True)
        unknown_keys, of_unknown = torch.unique(keys[unknown], return_inverse=True)
        initializer, name, seed = self._initial
        drawn = initial_values.initial_rows(
            initializer,
            name,
            seed,
            unknown_keys.cpu().numpy().view(np.uint64),
            self.weight.shape[1],
        )
        first = len(used)
        inverse[unknown] = first + of_unknown
        inverse[places == count + 1] = first + len(unknown_keys)
        rows = torch.cat(
            [
                self.weight[used],
                torch.from_numpy(drawn).to(self.weight),
                self.weight[count + 1 :],
            ]
        )
        return rows, inverse, first + len(unknown_keys)


class Embedding(torch.nn.Embedding, _KeyIndex):  # type: ignore[misc]
    """A torch.nn.Embedding that is looked up by 64-bit keys."""

    def __init__(self, table: "_Table", padding_idx: Optional[int] = None):
        super().__init__(len(table.keys) + 2, table.dim, _weight=table.empty_weight())
        self.set_rows(table, padding_idx)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-renamed
        """Rows of shape (*keys' shape, dim)."""
        rows, places, padding = self.find(keys)
        return functional.embedding(places, rows, padding_idx=padding)


class EmbeddingBag(torch.nn.EmbeddingBag, _KeyIndex):  # type: ignore[misc]
    """A torch.nn.EmbeddingBag that is looked up by 64-bit keys."""

    def __init__(
        self,
        table: "_Table",
        mode: str,
        padding_idx: Optional[int] = None,
        include_last_offset: bool = False,
    ):
        super().__init__(
            len(table.keys) + 2,
            table.dim,
            mode=mode,
            _weight=table.empty_weight(),
            include_last_offset=include_last_offset,
        )
        self.set_rows(table, padding_idx)

    def forward(  # pylint: disable=arguments-renamed
        self,
        keys: torch.Tensor,
        offsets: Optional[torch.Tensor] = None,
        per_sample_weights: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """One row per bag, as pawl.torch.EmbeddingBag's."""
        rows, places, padding = self.find(keys)
        return functional.embedding_bag(
            places,
            rows,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )


class _Collection(torch.nn.Module):
    """The part that both collections share."""

    def __init__(self, configs: list[Any], tables: list["_Table"]):
        super().__init__()
        self._configs = configs
        self._names = [n for names in embedding.names_of_results(configs) for n in names]
        self._lookups = [
            (number, feature)
            for number, config in enumerate(configs)
            for feature in config.feature_names
        ]
        self.embeddings = torch.nn.ModuleList(Embedding(table) for table in tables)

    def rows_of_features(self, features: Any) -> list[tuple[torch.Tensor, ...]]:
        """For each lookup: rows, places in them, and where each sample's begin, from offset 0."""
        order = {name: place for place, name in enumerate(features.keys())}
        batch, values = features.stride(), features.values()
        offsets = features.offsets().to(torch.int64)
        found: list[tuple[torch.Tensor, ...]] = []
        for number, feature in self._lookups:
            place = order[feature]
            own = offsets[place * batch : (place + 1) * batch + 1]
            keys = values[int(own[0]) : int(own[-1])]
            rows, places, _ = self.embeddings[number].find(keys)  # type: ignore[operator]
            found.append((rows, places, own - own[0], own))
        return found


class EmbeddingBagCollection(_Collection):
    """As pawl.torch.EmbeddingBagCollection, with its rows here."""

    def __init__(self, configs: list[Any], tables: list["_Table"], is_weighted: bool):
        super().__init__(configs, tables)
        self._is_weighted = is_weighted

    def embedding_bag_configs(self) -> list[Any]:
        """The tables."""
        return self._configs

    def is_weighted(self) -> bool:
        """Whether features have a weight for each key."""
        return self._is_weighted

    def forward(self, features: Any) -> embedding.KeyedTensor:
        """The pooled rows of each feature: (batch, dim)."""
        weights = features.weights_or_none() if self._is_weighted else None
        parts, dims = [], []
        found = self.rows_of_features(features)
        for (number, _), (rows, places, offsets, own) in zip(self._lookups, found):
            own_weights = None if weights is None else weights[int(own[0]) : int(own[-1])]
            mode = self._configs[number].pooling.lower()
            parts.append(pooling.pool(rows, places, offsets, own_weights, mode))
            dims.append(self._configs[number].embedding_dim)
        return embedding.KeyedTensor(self._names, dims, torch.cat(parts, dim=1))


class EmbeddingCollection(_Collection):
    """As pawl.torch.EmbeddingCollection, with its rows here."""

    def embedding_configs(self) -> list[Any]:
        """The tables."""
        return self._configs

    def forward(self, features: Any) -> dict[str, embedding.JaggedTensor]:
        """By feature: the rows of its keys."""
        return {
            name: embedding.JaggedTensor(
                functional.embedding(places, rows), own[1:] - own[:-1], offsets
            )
            for name, (rows, places, offsets, own) in zip(
                self._names, self.rows_of_features(features)
            )
        }


@dataclasses.dataclass
class _Table:
    """The rows of a table that was exported."""

    name: str
    keys: np.ndarray  # uint64, ascending
    rows: np.ndarray
    # Arguments of initial_values.initial_rows; None: unknown keys read as 0.
    initial: Optional[tuple[Mapping[str, Any], str, int]]

    @property
    def dim(self) -> int:
        return self.rows.shape[1]

    def empty_weight(self) -> torch.Tensor:
        """Room for the rows and two more: float32, whatever the program's default is."""
        return torch.empty(len(self.keys) + 2, self.dim, dtype=torch.float32, device="cpu")

    def initial_rows(self, keys: np.ndarray) -> np.ndarray:
        """The rows of unknown keys."""
        assert self.initial is not None
        return initial_values.initial_rows(*self.initial, keys, self.dim)


@dataclasses.dataclass
class Exported:
    """An export that load_export has read.

    Args:
      modules: by their paths in the model: ordinary modules in place of those of pawl.torch.
      state: parameters and buffers, for load_state_dict of the rest of the model.
    """

    modules: dict[str, torch.nn.Module]
    state: dict[str, torch.Tensor]


def _describe(path: str, module: LookupModule) -> dict[str, Any]:
    """A module as an object of model.json."""
    names = [handle.name for handle in module.handles]
    if isinstance(module, (embedding.Embedding, embedding.EmbeddingBag)):
        described: dict[str, Any] = {"padding_idx": module.padding_idx}
        if isinstance(module, embedding.EmbeddingBag):
            described.update(mode=module.mode, include_last_offset=module.include_last_offset)
    elif isinstance(module, (embedding.EmbeddingBagCollection, embedding.EmbeddingCollection)):
        pools = isinstance(module, embedding.EmbeddingBagCollection)
        configs: Any = (
            module.embedding_bag_configs()  # type: ignore[operator]
            if pools
            else module.embedding_configs()  # type: ignore[operator]
        )
        described = {"features": [list(config.feature_names) for config in configs]}
        if pools:
            described["pooling"] = [getattr(c.pooling, "value", c.pooling) for c in configs]
            described["is_weighted"] = module.is_weighted()  # type: ignore[operator]
    else:
        raise errors.InvalidArgumentError(
            "module %r is a %s, which has no exported form" % (path, type(module).__name__)
        )
    kind = next(
        cls.__name__ for cls in type(module).__mro__ if cls.__module__ == embedding.__name__
    )
    return {"path": path, "type": kind, "tables": names, **described}


def _described(model: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """The descriptions of the model's modules of pawl.torch, by path."""
    return {
        path: _describe(path, module)
        for path, module in model.named_modules()
        if isinstance(module, LookupModule)
    }


def _build(described: Mapping[str, Any], tables: Mapping[str, _Table]) -> torch.nn.Module:
    """The ordinary module that a description stands for."""
    own = [tables[name] for name in described["tables"]]
    kind = described["type"]
    if kind == "Embedding":
        return Embedding(own[0], described["padding_idx"])
    if kind == "EmbeddingBag":
        return EmbeddingBag(
            own[0], described["mode"], described["padding_idx"], described["include_last_offset"]
        )
    pools = kind == "EmbeddingBagCollection"
    configs = [
        embedding.EmbeddingBagConfig(table.name, table.dim, features, pooling)
        for table, features, pooling in zip(
            own, described["features"], described.get("pooling", ["SUM"] * len(own))
        )
    ]
    if pools:
        return EmbeddingBagCollection(configs, own, described["is_weighted"])
    return EmbeddingCollection(configs, own)


def _file_names(tables: list[str]) -> dict[str, str]:
    """A file for each table."""
    files: dict[str, str] = {}
    taken = {_DENSE_FILE}
    for table in tables:
        stem = re.sub(r"[^A-Za-z0-9_-]", ".", table)
        stem = "table" + stem if stem.startswith(".") else stem
        number, file = 2, stem + ".safetensors"
        while file in taken:
            number, file = number + 1, "%s-%d.safetensors" % (stem, number)
        taken.add(file)
        files[table] = file
    return files


def export(
    model: torch.nn.Module,
    folder: str,
    *,
    client: Optional[Client] = None,
    consistent: bool = True,
) -> None:
    """Writes the model as it is on the servers now, for programs without Pawl; see load_export.

    Call it in one process. All rows and parameters are of one step: in the loop of a SYNC job
    without backup workers, of Job.step, before the gradients of that step; after the loop, of the
    job's end. Other ranks wait with their next step for the rank that exports. The largest table
    must fit into this process's memory, twice. The folder appears complete, or not at all.

    Args:
      model: its pawl.torch modules, parameters and buffers are written.
      folder: must not exist.
      client: default: that of the modules or of the job.
      consistent: False: read also while ranks train and nothing makes them wait. Rows are then of
        different steps.

    Raises:
      FileExistsError: the folder exists.
      FailedPreconditionError: `consistent`, and ranks train, or have trained meanwhile, but the job
        is not SYNC or this process is not its worker. A checkpoint is consistent there: `pawlctl
        checkpoint` and `pawlctl export`.
    """
    described = list(_described(model).values())
    handles = [handle for module in lookup_modules(model) for handle in module.handles]
    if os.path.lexists(folder):
        raise FileExistsError("%s exists; name another folder, or delete it" % folder)
    client = client_of(model, client)
    version = _require_one_version(client) if consistent else ""
    partial = "%s.%s.tmp" % (os.path.abspath(folder), secrets.token_hex(8))
    os.mkdir(partial)
    try:
        files = _file_names([handle.name for handle in handles])
        job = client.job
        tables = [_write_table(partial, files[h.name], h, client) for h in handles]
        state = state_dict(model, client)
        safetensors.write(
            os.path.join(partial, _DENSE_FILE),
            {name: value.cpu().numpy() for name, value in state.items()},
        )
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "pawl": pawl.__version__,
            "job": job.get("name", ""),
            "seed": int(job.get("seed", 0)),
            "dense": _DENSE_FILE,
            "modules": described,
            "tables": tables,
        }
        # Ranks may have begun to train meanwhile, and may have come to the end.
        if consistent and _require_one_version(client) != version:
            raise errors.FailedPreconditionError(
                "the job was trained while its model was read: export it again"
            )
        _write_json(os.path.join(partial, _MODEL_FILE), content)
        _sync_folder(partial)
        os.rename(partial, folder)
        _sync_folder(os.path.dirname(os.path.abspath(folder)))
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_table(folder: str, file: str, handle: TableHandle, client: Client) -> dict[str, Any]:
    """Writes the rows of a table, and returns the table's entry in the model's file."""
    table = handle.table(client)
    keys, rows = sorted_rows(table)
    path = os.path.join(folder, file)
    safetensors.write(path, {"keys": keys, "rows": rows}, {"table": handle.name})
    return {
        "name": handle.name,
        "file": file,
        "rows": len(keys),
        "dim": handle.dim,
        "initializer": table.spec.get("initializer", {}),
    }


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def _require_one_version(client: Client) -> str:
    version = wait_for_version(client)
    if version is None:
        raise errors.FailedPreconditionError(
            "the job is being trained, and the model's rows would be of different steps: export in "
            "the loop of a SYNC job or after the loop, or a checkpoint (`pawlctl checkpoint`, then "
            "`pawlctl export`), or pass consistent=False"
        )
    return version


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_export(
    folder: str,
    model: Optional[torch.nn.Module] = None,
    *,
    unknown: str = "initial",
    strict: bool = True,
) -> Any:
    """Reads a folder of export, or of `pawlctl export`. Needs no server.

    Args:
      folder: an exported model. That of `pawlctl export` needs `model`.
      model: an instance of the class that was exported. Its pawl.torch modules are replaced by
        ordinary ones, its parameters and buffers are loaded, and it is put into evaluation mode.
      unknown: what keys read that had no row: "initial", the table's initial value, as on the
        servers; or "zero".
      strict: False: buffers and parameters that the folder lacks keep the values of `model`. A
        checkpoint, and so `pawlctl export`, has no buffers and no parameters that do not require a
        gradient.

    Returns:
      The model (its replacement, if the model is itself a module of pawl.torch). Without `model`,
      an Exported. The predictions have the bits of those of the exported model in evaluation mode.

    Raises:
      InvalidArgumentError: the folder does not fit the model; or `strict`, and it is of `pawlctl
        export` and lacks a buffer or parameter, such as the means of a BatchNorm.
    """
    if unknown not in ("initial", "zero"):
        raise errors.InvalidArgumentError(
            "unknown is %r; choose from initial, zero" % (unknown,)
        )
    with open(os.path.join(folder, _MODEL_FILE), encoding="utf-8") as file:
        content = json.load(file)
    if content.get("format") == _CHECKPOINT_FORMAT and model is None:
        raise errors.InvalidArgumentError(
            "%s was written by `pawlctl export`, which does not know the model's modules: pass "
            "model=" % folder
        )
    if content.get("format") not in (_FORMAT, _CHECKPOINT_FORMAT) or content["version"] > _VERSION:
        raise errors.InvalidArgumentError(
            "%s has the format %s, version %s, which this version of Pawl does not read"
            % (folder, content.get("format"), content.get("version"))
        )
    if content["format"] == _FORMAT:
        described, tables, state = _read_export(folder, content)
    else:
        assert model is not None
        described, tables, state = _read_checkpoint(folder, content, model)
    if unknown == "zero":
        tables = {name: dataclasses.replace(t, initial=None) for name, t in tables.items()}
    modules = {entry["path"]: _build(entry, tables) for entry in described}
    if model is None:
        return Exported(modules, state)
    _check_modules(model, described)
    missing = [name for name in model.state_dict() if name not in state]
    if missing and strict and content["format"] == _CHECKPOINT_FORMAT:
        raise errors.InvalidArgumentError(
            "a checkpoint has no buffers and no parameters that do not require a gradient, and the "
            "model has %s: write it with pawl.torch.export, or give the model their values and "
            "pass strict=False" % ", ".join(missing)
        )
    model.load_state_dict(state, strict=strict)
    return _replace(model, modules).eval()


def _read_export(folder: str, content: Mapping[str, Any]) -> tuple[Any, dict[str, _Table], Any]:
    tables = {}
    for entry in content["tables"]:
        arrays, _ = safetensors.read(os.path.join(folder, entry["file"]))
        initial = (entry["initializer"], entry["name"], content["seed"])
        tables[entry["name"]] = _Table(entry["name"], arrays["keys"], arrays["rows"], initial)
    arrays, _ = safetensors.read(os.path.join(folder, content["dense"]))
    state = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return content["modules"], tables, state


def _read_checkpoint(
    folder: str, content: Mapping[str, Any], model: torch.nn.Module
) -> tuple[Any, dict[str, _Table], Any]:
    """The parts of a checkpoint's export (server/export/model_format.md) that the model names."""
    entries = {entry["name"]: entry for entry in content["tables"]}

    def find(name: str, what: str) -> Mapping[str, Any]:
        if name not in entries:
            raise errors.InvalidArgumentError("%s has no table %r of %s" % (folder, name, what))
        return entries[name]

    def array(entry: Mapping[str, Any], tensor: str) -> np.ndarray:
        if content.get("arrays") == "safetensors":
            return safetensors.read(os.path.join(folder, entry["file"]))[0][tensor]
        file = entry.get(tensor + "_file") or entry["file"]
        return np.load(os.path.join(folder, file), mmap_mode="r")

    tables = {}
    for module in lookup_modules(model):
        for handle in module.handles:
            entry = find(handle.name, "the model")
            keys = array(entry, "keys")
            rows = array(entry, "rows")
            initial = (handle.spec["initializer"], handle.name, int(content["seed"]))
            tables[handle.name] = _Table(handle.name, keys, rows, initial)
    state = {}
    # Tied parameters are one table, named after the first.
    firsts: dict[int, str] = {}
    for name, parameter in all_parameters(model):
        if not parameter.requires_grad:
            continue
        first = firsts.setdefault(id(parameter), name)
        values = array(find(table_name(first), "parameter %r" % name), "values")
        state[name] = torch.from_numpy(np.array(values)).view(parameter.shape)
    return list(_described(model).values()), tables, state


def _check_modules(model: torch.nn.Module, described: list[Mapping[str, Any]]) -> None:
    found = _described(model)
    for entry in described:
        own = found.pop(entry["path"], None)
        if own != dict(entry):
            raise errors.InvalidArgumentError(
                "module %r was exported as %s, and the model has %s" % (entry["path"], entry, own)
            )
    if found:
        raise errors.InvalidArgumentError("the export has no module %r" % next(iter(found)))


def _replace(
    model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]
) -> torch.nn.Module:
    """Puts the modules to their paths, and wherever the model shares what they replace."""
    if "" in modules:
        return modules[""]
    paths = list(model.named_modules(remove_duplicate=False))
    new = {id(dict(paths)[path]): module for path, module in modules.items()}
    for path, module in paths:
        if id(module) in new:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, new[id(module)])
    return model
