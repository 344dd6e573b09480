"""A model's parameters out of the servers, and into them.

A state is a flat dictionary of tensors on the CPU:

    NAME                  a parameter or buffer, as in torch's state_dict
    slots/NAME            the optimizer's state of a parameter
    tables/TABLE/keys     the keys of a table's rows, ascending if read as uint64; int64, bit by bit
    tables/TABLE/rows     its rows, (keys, dim)
    tables/TABLE/slots    the optimizer's state of each row, (keys, slot_count)
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import numpy as np
import torch

from pawl import errors, job as job_module
from pawl.client import Client
from pawl.items import assign_item
from pawl.table import Table
from pawl.torch.lookup import InitialRows, LookupModule
from pawl.torch.optimizer import (
    ASSIGNED_TABLE,
    DENSE_PREFIX,
    SLOTS_ATTRIBUTE,
    all_parameters,
    forget_slots,
    lookup_modules,
    table_name,
)

_TABLES = "tables/"
_SLOTS = "slots/"


def client_of(model: torch.nn.Module, client: Optional[Client]) -> Client:
    """The given client, or that of the model's modules, or that of the job."""
    if client is not None:
        return client
    for module in model.modules():
        if isinstance(module, LookupModule):
            return module.client()
    return job_module.current().client


def wait_for_version(client: Client) -> Optional[str]:
    """The one version that the job's tables have; it stays until this process trains on.

    None: there is none. If this process is a worker of the job, see Job.wait_for_version.
    Otherwise: whether no ranks train now; a rank that begins later changes the version. What
    clients without ranks push is not known.
    """
    if job_module.has_open():
        job = job_module.current()
        if job.client.describe()["job_id"] == client.describe()["job_id"]:
            return "that of this process" if job.wait_for_version() else None
    status = client.status()
    total, steps = int(status.get("steps_total", 0)), int(status.get("steps", 0))
    if status.get("state") in ("FINISHING", "COMPLETED") or 0 < total <= steps:
        return "the last"
    if any(
        node.get("logical_workers") and not node.get("gone") for node in status.get("nodes", [])
    ):
        return None
    return "step %d" % steps


def sorted_rows(table: Table, slots: bool = False) -> tuple[np.ndarray, ...]:
    """Keys, ascending, and rows of a table, and slots if they are wanted."""
    pages = list(table.scan(slots=slots))
    if not pages:
        widths = [table.dim] + ([table.slot_count] if slots else [])
        return (
            np.empty(0, np.uint64),
            *(np.empty((0, width), np.float32) for width in widths),
        )
    parts = [np.concatenate(part) for part in zip(*pages)]
    del pages
    order = np.argsort(parts[0])
    return tuple(part[order] for part in parts)


def state_dict(
    model: torch.nn.Module,
    client: Optional[Client] = None,
    *,
    tables: bool = False,
    slots: bool = False,
) -> dict[str, Any]:
    """The model's parameters as they are on the servers now; see pawl.torch.state.

    Buffers, parameters that do not require a gradient, and parameters that a SparseOptimizer
    leaves to others, are this process's own. In a job whose Optimizer trains parameters, one that
    it does not know by this name is refused. In the loop of a SYNC job, and after the loop, the
    result is the model at one step; see export. Otherwise nothing may be trained meanwhile.

    Args:
      model: its pawl.torch modules may not be trained yet.
      client: default: that of the modules or of the job.
      tables: the rows of tables too. They must fit into this process's memory, twice.
      slots: the optimizers' state too.
    """
    client = client_of(model, client)
    wait_for_version(client)
    existing = {table.name: table for table in client.tables()}
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    # Whether an Optimizer trains parameters, and not only rows.
    is_trained = ASSIGNED_TABLE in existing and any(
        name.startswith(DENSE_PREFIX) for name in existing
    )
    # Tied parameters are one table, named after the first.
    names: dict[int, str] = {}
    for name, parameter in all_parameters(model):
        table = existing.get(table_name(names.setdefault(id(parameter), name)))
        if not parameter.requires_grad:
            continue
        if table is None:
            if is_trained:
                raise errors.InvalidArgumentError(
                    "the job trains no parameter %r: pass the model that pawl.torch.Optimizer was "
                    "given, or set requires_grad to False if the value is this process's own" % name
                )
            continue
        if slots and table.slot_count:
            values, states = table.pull_slots()
            state[_SLOTS + name] = torch.from_numpy(states)
        else:
            values = table.pull()
        state[name] = torch.from_numpy(values).view(state[name].shape)
    if not tables:
        return state
    for module in lookup_modules(model):
        for handle in module.handles:
            found = sorted_rows(handle.table(client), slots)
            prefix = _TABLES + handle.name + "/"
            state[prefix + "keys"] = torch.from_numpy(found[0].view(np.int64))
            state[prefix + "rows"] = torch.from_numpy(found[1])
            if slots:
                state[prefix + "slots"] = torch.from_numpy(found[2])
    return state


def load_state_dict(
    model: torch.nn.Module,
    state: Mapping[str, Any],
    client: Optional[Client] = None,
    *,
    strict: bool = True,
) -> None:
    """Makes a state (see state_dict) the model's initial one.

    Without `client`: before job.steps, in every process. Parameters and buffers are loaded into the
    model at once. In the job's first step rank 0 sets them, the rows and the slots on the servers.
    A job that has made its first step, also one that is restored from a checkpoint, keeps what it
    has.

    With `client`: sets the rows, the slots, and the parameters that have tables, on the servers
    now, through this client, which must not host ranks. It is for SparseOptimizer, and for models
    that are not trained; one process calls it, before others train.

    Rows of tables that the state does not name stay as they are. Without slots in the state, slots
    get their initial values.

    Args:
      model: its pawl.torch modules name the tables.
      state: tensors or arrays.
      client: see above.
      strict: raise InvalidArgumentError if the state lacks a parameter or table of the model or has
        others.
    """
    handles = {h.name: h for module in lookup_modules(model) for h in module.handles}
    dense: dict[str, Any] = {}
    slots: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name, value in state.items():
        if name.startswith(_TABLES):
            table, _, part = name[len(_TABLES) :].rpartition("/")
            rows.setdefault(table, {})[part] = value
        elif name.startswith(_SLOTS):
            slots[name[len(_SLOTS) :]] = value
        else:
            dense[name] = torch.as_tensor(value)
    parameters = dict(all_parameters(model))
    if strict:
        _check_names("table", set(rows), set(handles))
        _check_names("parameter", set(dense), set(model.state_dict()))
    for name in slots:
        if name not in parameters and strict:
            raise errors.InvalidArgumentError("the model has no parameter %r of slots" % name)
    initial = {}
    for table, parts in rows.items():
        if table not in handles:
            continue
        if "keys" not in parts or "rows" not in parts:
            raise errors.InvalidArgumentError("the state has no keys and rows of table %r" % table)
        initial[table] = InitialRows.of(
            table, handles[table].dim, parts["keys"], parts["rows"], parts.get("slots")
        )
    model.load_state_dict(dense, strict=False)
    for table, initial_rows in initial.items():
        handles[table].initial = initial_rows
    forget_slots(parameters[name] for name in parameters if name in dense)
    for name, value in slots.items():
        if name in parameters:
            given = torch.as_tensor(value).detach().cpu().numpy()
            setattr(parameters[name], SLOTS_ATTRIBUTE, given)
    if client is not None:
        assign_initial(model, client)
        _assign_dense(parameters, client)
        forget_slots(parameters.values())


def assign_initial(model: torch.nn.Module, client: Client) -> None:
    """Sets the initial rows of the model's tables now, through a client without ranks."""
    for module in lookup_modules(model):
        for handle in module.handles:
            handle.assign_initial(client, client.free_running)


def _check_names(what: str, given: set[str], wanted: set[str]) -> None:
    missing, other = sorted(wanted - given), sorted(given - wanted)
    if not missing and not other:
        return
    raise errors.InvalidArgumentError(
        "the state does not match the model: missing %ss: %s; unknown %ss: %s; pass strict=False "
        "to load the rest" % (what, ", ".join(missing) or "none", what, ", ".join(other) or "none")
    )


def _assign_dense(parameters: Mapping[str, torch.nn.Parameter], client: Client) -> None:
    existing = {table.name: table for table in client.tables()}
    items = []
    for name, parameter in parameters.items():
        table = existing.get(table_name(name))
        if table is None or not parameter.requires_grad:
            continue
        slots = getattr(parameter, SLOTS_ATTRIBUTE, None)
        value = parameter.detach().to("cpu", torch.float32).contiguous().numpy()
        items.append(assign_item(table, None, value, slots=slots))
    if items:
        client.free_running.assign(items).wait()
