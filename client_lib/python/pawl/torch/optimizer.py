"""Optimizers that live on the servers."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import warnings
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

import numpy as np
import torch

from pawl import errors, job as job_module, specs
from pawl.client import Client
from pawl.futures import Future
from pawl.items import CallPart, Item, TensorsPart, assign_item, pull_item
from pawl.rank import Rank
from pawl.session import Session
from pawl.table import Table
from pawl.torch.lookup import LookupModule, TableHandle


# The attribute of a parameter with the slots that it has before training begins.
SLOTS_ATTRIBUTE = "_pawl_initial_slots"
# The tables of parameters, and one that an Optimizer's job has if its first step sets something.
DENSE_PREFIX = "dense/"
ASSIGNED_TABLE = "pawl.torch/assigned"


def forget_slots(parameters: Iterable[torch.nn.Parameter]) -> None:
    """The parameters have no slots before training begins."""
    for parameter in parameters:
        parameter.__dict__.pop(SLOTS_ATTRIBUTE, None)


def lookup_modules(model: torch.nn.Module) -> list[LookupModule]:
    """The model's modules with tables. Raises InvalidArgumentError if two have the same table."""
    modules = [module for module in model.modules() if isinstance(module, LookupModule)]
    names = [handle.name for module in modules for handle in module.handles]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.InvalidArgumentError(
            "several modules have a table named %s; share the module instead" % ", ".join(twice)
        )
    return modules


def all_parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Parameters under all their names. torch 1 has no named_parameters(remove_duplicate=False)."""
    for path, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield path + "." * bool(path) + name, parameter


def _trained_modules(model: torch.nn.Module) -> list[LookupModule]:
    modules = lookup_modules(model)
    for module in modules:
        module.has_optimizer = True
    return modules


def _row_gradients(
    modules: list[LookupModule], weight: float, element_type: str
) -> list[CallPart]:
    """The gradients of all lookups, in the order in which modules declare their tables."""
    return [part for module in modules for part in module.take_gradients(weight, element_type)]


class _CheckedGradients(List[torch.Tensor]):
    """The parameters of the last group: its own, `nothing`, and the rows that have gradients now.

    So torch's GradScaler checks and unscales the gradients of rows as those of parameters. It
    refuses an optimizer without any gradient, but a rank's batch may have none, and its step must
    end: `nothing` has a gradient then, which is 0.

    Args:
      own: the group's parameters.
      dense: the parameters of all groups.
      lookups: the modules with rows.
    """

    def __init__(
        self,
        own: Sequence[torch.Tensor],
        dense: Sequence[torch.Tensor],
        lookups: Sequence[LookupModule],
    ):
        self._nothing = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))
        super().__init__([*own, self._nothing])
        self._dense, self._lookups = dense, lookups

    def __iter__(self) -> Iterator[torch.Tensor]:
        rows = [leaf for module in self._lookups for leaf in module.gradient_leaves()]
        self._nothing.grad = None
        if not any(tensor.grad is not None for tensor in [*self._dense, *rows]):
            if self._dense:
                self._nothing.data = self._nothing.data.to(self._dense[0].device)
            self._nothing.grad = torch.zeros_like(self._nothing)
        yield from super().__iter__()
        yield from rows


def _scaling(optimizer: Any) -> tuple[bool, float]:
    """Whether torch's GradScaler wants the gradients dropped, and the factor that unscales them.

    Its step() sets these attributes of optimizers that have _step_supports_amp_scaling.
    """
    found_inf = getattr(optimizer, "found_inf", None)
    scale = getattr(optimizer, "grad_scale", None)
    # As GradScaler.unscale_ computes it. None: that has been called.
    factor = 1.0 if scale is None else float(scale.double().reciprocal().float())
    return found_inf is not None and bool(found_inf), factor


# Servers take no rate of 0, which warm-ups begin with and decays end at. This one changes no weight
# that is a normal float32.
_SMALLEST_RATE = float(np.finfo(np.float32).tiny)


class _Rates:
    """The learning rates of the groups, by step.

    A process that takes rank 0 over must push what its predecessor would have: the rates of a step
    where they differ from those of the step before. So they must be a function of the step only,
    which schedulers that are stepped from 0 are.
    """

    def __init__(self, initial: list[float]):
        self.schedulers: list[Any] = []
        self._initial = initial
        # For each step from the first on; equal ones are one object.
        self._by_step: list[list[float]] = []

    def advance(self, step: int, read: Callable[[], list[float]]) -> None:
        """Steps the schedulers up to a step, from the first."""
        while len(self._by_step) <= step:
            if self._by_step:
                with warnings.catch_warnings():
                    # torch expects its optimizer to step in between.
                    warnings.simplefilter("ignore", UserWarning)
                    for scheduler in self.schedulers:
                        scheduler.step()
            now, before = read(), self.at(len(self._by_step) - 1)
            self._by_step.append(before if now == before else now)

    def at(self, step: int) -> list[float]:
        """The rates of a step that schedulers have been stepped to; -1: those of the tables."""
        return self._by_step[step] if step >= 0 else self._initial

    def check(self, rates: list[float]) -> None:
        """Raises InvalidArgumentError if the program has set other rates than the schedulers."""
        if rates != self._by_step[-1]:
            raise errors.InvalidArgumentError(
                "the learning rates were changed from %r to %r in the loop: a worker that is "
                "restarted would not know. Pass a scheduler of torch to job.steps(schedulers=[...])"
                % (self._by_step[-1], rates)
            )

    def check_continues(self, step: int, before: Optional[list[float]]) -> None:
        """Raises FailedPreconditionError if servers would keep a rate of the step before.

        The program sends only what changes from one step to the next. More would shift the places
        of pushes in a step that a predecessor has begun.
        """
        if before is None:
            return
        here = self.at(step - 1)
        for old, rate, sent in zip(before, here, self.changed_at(step)):
            # Machines may compute schedules with different last bits.
            if sent is None and not math.isclose(old, rate, rel_tol=1e-6):
                raise errors.FailedPreconditionError(
                    "this program continues a job with other learning rates: those of step %d "
                    "were %r, and are %r here. Give the steps before the rates that they had; a "
                    "scheduler in job.steps(schedulers=[...]) can set others for later steps"
                    % (step - 1, before, here)
                )

    def changed_at(self, step: int) -> list[Optional[float]]:
        """For each group: its rate if it differs from that of the step before, or None."""
        return [
            lr if lr != old else None for lr, old in zip(self.at(step), self.at(step - 1))
        ]


def table_name(parameter: str) -> str:
    """The dense table of a parameter. Parameters of different names have different tables."""
    name = re.sub(r"[^A-Za-z0-9_./-]", "_", parameter)
    if name != parameter:
        # Other names may have become the same: "a b" and "a_b" are two parameters.
        name += "." + hashlib.sha256(parameter.encode()).hexdigest()[:8]
    return DENSE_PREFIX + name


# Tells ranks of jobs that are not SYNC that rank 0 has set the parameters.
_ASSIGNED = specs.dense_spec(ASSIGNED_TABLE, (1,), specs.Replace(), specs.Constant(0.0))


@dataclasses.dataclass
class _Coming:
    """Parameters of a step on their way, pulled by a rank."""

    session: Session
    step: int
    pull: Future[Any]
    values: np.ndarray

    def is_valid(self) -> bool:
        """False: the rank has left this process, which ends its calls."""
        return self.session.is_open


class _Dense:
    """A model's own parameters as dense tables."""

    def __init__(
        self,
        named: list[tuple[str, torch.nn.Parameter]],
        optimizer: specs.Optimizer,
        lookups: list[LookupModule],
    ):
        by_table: dict[str, str] = {}
        for name, _ in named:
            other = by_table.setdefault(table_name(name), name)
            if other != name:
                raise errors.InvalidArgumentError(
                    "parameters %r and %r would share the table %r; rename one"
                    % (other, name, table_name(name))
                )
        self._named = named
        self._optimizer = optimizer
        self._handles = [handle for module in lookups for handle in module.handles]
        self.tables: list[Table] = []
        self._assigned: Optional[Table] = None
        self._is_assigned = np.zeros(1, np.float32)
        self._step = -1
        self._coming: Optional[_Coming] = None
        # The parameters of step _step.
        self._values: list[torch.Tensor] = []

    def check_created(self, client: Client) -> None:
        """Raises FailedPreconditionError if a parameter has no table after the job's first step.

        That step alone sets tables to the model's values: a table that is created later stays 0.
        """
        existing = {table.name for table in client.tables()}
        missing = [name for name, _ in self._named if table_name(name) not in existing]
        if missing:
            raise errors.FailedPreconditionError(
                "the job has no parameter %s, and its first step has set the others: give the "
                "parameters the names that they had then (pass Optimizer the model that "
                "torch.compile was given, not its result), or begin a new job with "
                "pawl.torch.load_state_dict" % ", ".join(map(repr, missing))
            )

    def create(self, client: Client) -> None:
        """Creates the tables, in the parameters' order."""
        for name, parameter in self._named:
            if parameter.dtype != torch.float32:
                raise errors.InvalidArgumentError(
                    "parameter %s has the type %s; servers keep float32 (use autocast for others)"
                    % (name, parameter.dtype)
                )
            spec = specs.dense_spec(
                table_name(name),
                tuple(parameter.shape),
                self._optimizer,
                specs.Constant(0.0),
            )
            self.tables.append(client.create(spec).wait())
        self._assigned = client.create(_ASSIGNED).wait()

    def assign(self, client: Client, session: Session) -> None:
        """Sets the parameters and rows to the model's values. Rank 0, in the job's first step."""
        if self.tables:
            session.assign(self.values()).wait()
        for handle in self._handles:
            handle.assign_initial(client, session)
        assert self._assigned is not None
        one = np.ones(1, np.float32)
        session.assign([assign_item(self._assigned, None, one)]).wait()

    def forget_initial(self) -> None:
        """Frees what only the first step needs, once it has ended."""
        for handle in self._handles:
            handle.initial = None
        forget_slots(parameter for _, parameter in self._named)

    def ask(self, session: Session) -> Future[Any]:
        """Asks whether rank 0 has set the parameters; see is_assigned."""
        assert self._assigned is not None
        item = pull_item(self._assigned, None, out=self._is_assigned)
        return session.pull([item])

    def is_assigned(self) -> bool:
        """The answer to ask."""
        return bool(self._is_assigned[0])

    def values(self) -> list[Item]:
        """The model's present values, to assign."""
        return [
            assign_item(
                table, None, _copy(parameter), slots=getattr(parameter, SLOTS_ATTRIBUTE, None)
            )
            for table, (_, parameter) in zip(self.tables, self._named)
        ]

    def gradients(self, weight: float, element_type: str) -> list[CallPart]:
        """Copies of the gradients, which the program may change meanwhile."""
        found = [
            (table, parameter.grad.detach().to(torch.float32).reshape(-1))
            for table, (_, parameter) in zip(self.tables, self._named)
            if parameter.grad is not None
        ]
        if not found:
            return []
        flat = [gradient for _, gradient in found]
        if len({gradient.device for gradient in flat}) > 1:
            flat = [gradient.cpu() for gradient in flat]
        copy = torch.cat(flat).cpu().numpy()
        if weight != 1.0:
            copy *= np.float32(weight)
        return [TensorsPart([table for table, _ in found], copy, element_type)]

    def to_pull(self, step: int) -> Optional[tuple[CallPart, np.ndarray]]:
        """Returns the pull of a step; None: it has arrived or is on its way. See on_pull."""
        if self._coming is not None and self._coming.step == step and self._coming.is_valid():
            return None
        if self.tables:
            values = np.empty(sum(table.size for table in self.tables), np.float32)
            return TensorsPart(self.tables, values), values
        # Any pull tells that the mode lets the rank begin its step.
        assert self._assigned is not None
        return pull_item(self._assigned, None), np.empty(0, np.float32)

    def on_pull(
        self, session: Session, step: int, pull: Future[Any], values: np.ndarray
    ) -> None:
        """`pull` fetches what to_pull has returned."""
        self._coming = _Coming(session, step, pull, values)

    def start(
        self, session: Session, step: int, timeout: float, reuse: bool
    ) -> Optional[Future[Any]]:
        """As StepPart.start. `reuse`: the parameters of a step never change."""
        if reuse and self._step == step:
            return None
        wanted = self.to_pull(step)
        if wanted is not None:
            part, values = wanted
            self.on_pull(session, step, session.pull([part], step=step, timeout=timeout), values)
        assert self._coming is not None
        return self._coming.pull

    def has_arrived(self, step: int) -> bool:
        """After start's call: False if the rank that pulled has left the process meanwhile."""
        return self._step == step or self._coming is not None and self._coming.is_valid()

    def load(self, step: int) -> None:
        """Puts the step's parameters into the model: a rank's kept state may have replaced them."""
        if self._coming is not None and self._coming.step == step:
            coming, self._coming = self._coming, None
            coming.pull.wait()
            flat = torch.from_numpy(coming.values).split([table.size for table in self.tables])
            self._values = [
                some.view(parameter.shape) for some, (_, parameter) in zip(flat, self._named)
            ]
            self._step = step
        with torch.no_grad():
            for (_, parameter), value in zip(self._named, self._values):
                parameter.copy_(value)


def _copy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()


class Optimizer(torch.optim.Optimizer):
    """Trains a model whose parameters, dense and sparse, are on the servers.

    Each step() pushes the rank's gradients and ends its step. In SYNC mode the servers sum the
    gradients of all ranks, divide by their number and update once. Use it with Job.steps.

    Rank 0's initial values of dense parameters count. The job's first step sets them; batches begin
    with the second.

    torch's GradScaler works with it: its step() unscales the gradients of parameters and rows. If
    one of the rank's is not finite, the rank's step ends without gradients. A step without any
    gradient counts as one whose gradients are finite.

    Args:
      model: its pawl.torch modules and its parameters that require a gradient are trained.
      dense: the optimizer of the parameters; required if there are any.
      job: default: that of pawl.init.
      element_type: how gradients travel: float32, bfloat16 or float16.
    """

    # For torch's GradScaler: step() is called also to skip, because the rank's step must end.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        model: torch.nn.Module,
        dense: Optional[specs.Optimizer] = None,
        *,
        job: Optional[job_module.Job] = None,
        element_type: str = "float32",
    ):
        self.job = job or job_module.current()
        if any(isinstance(part, Optimizer) for part in self.job.parts):
            raise errors.InvalidArgumentError(
                "the job has an Optimizer: one ends each step, so give it the whole model (a "
                "ModuleList of several)"
            )
        self._lookups = _trained_modules(model)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if named and dense is None:
            raise errors.InvalidArgumentError(
                "the model has parameters of its own (%s): pass dense=, such as pawl.Adam(1e-3)"
                % ", ".join(name for name, _ in named[:3])
            )
        self._dense: Optional[_Dense] = None
        if named and dense is not None:
            self._dense = _Dense(named, dense, self._lookups)
        self._element_type = element_type
        self._has_tables = False
        # One group for the parameters, and one for the tables of each learning rate. torch wants at
        # least one parameter in each.
        groups: list[dict[str, Any]] = []
        # The tables of each group; None: the parameters' own.
        self._handles: list[Optional[list[TableHandle]]] = []
        if dense is not None and named:
            groups.append({"params": [p for _, p in named], "lr": dense.lr})
            self._handles.append(None)
        by_lr: dict[float, list[TableHandle]] = {}
        for module in self._lookups:
            for handle in module.handles:
                by_lr.setdefault(handle.optimizer.lr, []).append(handle)
        for lr, handles in by_lr.items():
            empty = torch.nn.Parameter(torch.zeros(0, dtype=torch.float32, device="cpu"))
            groups.append({"params": [empty], "lr": lr})
            self._handles.append(handles)
        self._rates = _Rates([group["lr"] for group in groups])
        super().__init__(groups, {})
        if groups:
            # The rows of all tables, in one of their groups.
            own = [] if by_lr else self.param_groups[-1]["params"]
            self.param_groups[-1]["params"] = _CheckedGradients(
                own, [p for _, p in named], self._lookups
            )
        self.job.add_part(self)  # type: ignore[arg-type]

    @property
    def steps_before_data(self) -> int:
        """See StepPart: a first step sets parameters and rows, if there are any to set."""
        handles = [handle for module in self._lookups for handle in module.handles]
        if self._dense is None and any(handle.initial is not None for handle in handles):
            self._dense = _Dense([], specs.Replace(), self._lookups)
        return 1 if self._dense is not None else 0

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Optional[Callable[[], float]] = None
    ) -> Optional[float]:
        """Pushes the gradients since the last step() and ends the rank's step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        job = self.job
        self._rates.check([group["lr"] for group in self.param_groups])
        session = job.hosted_session()
        is_skipped, factor = _scaling(self)
        parts: list[CallPart] = []
        if is_skipped:
            self._forget_rows()
        else:
            weight = job.gradient_weight * factor
            parts = _row_gradients(self._lookups, weight, self._element_type)
            if self._dense is not None:
                parts += self._dense.gradients(weight, self._element_type)
        job.end_step(parts)
        if self._dense is not None and job.mode == "SYNC":
            self._dense.start(session, job.next_step, job.wait_timeout, reuse=True)
        if loss is not None:
            job.report_loss(float(loss))
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients of parameters and of rows that step() has not pushed."""
        # First: torch would take the gradients that say what was recorded for them.
        for module in self._lookups:
            module.zero_grad(set_to_none)
        super().zero_grad(set_to_none)

    def follow(self, schedulers: Sequence[Any]) -> None:
        """Lets schedulers of torch set the learning rates of each step. Job.steps calls this."""
        self._rates.schedulers = list(schedulers)

    def _push_rates(self, rank: Rank, step: int) -> None:
        self._rates.check_continues(step, rank.rates)
        rank.set_rates(self._rates.at(step))
        rates: dict[Table, float] = {}
        for handles, lr in zip(self._handles, self._rates.changed_at(step)):
            if lr is None:
                continue
            if handles is None:
                assert self._dense is not None
                tables = self._dense.tables
            else:
                tables = [handle.table(self.job.client) for handle in handles]
            rates.update({table: max(lr, _SMALLEST_RATE) for table in tables})
        if rates:
            rank.session.set_learning_rates(rates)

    def start(self, job: job_module.Job, rank: Rank) -> Optional[Future[Any]]:
        """Creates the tables, once, and fetches the parameters of the rank's step."""
        if not self._has_tables:
            if self._dense is not None and rank.step > 0:
                self._dense.check_created(job.client)
            # All processes create all tables in this order, so that these have the same numbers.
            for module in self._lookups:
                for handle in module.handles:
                    handle.table(job.client)
            if self._dense is not None:
                self._dense.create(job.client)
            self._has_tables = True
        if self._dense is not None and rank.step == 0:
            # In SYNC mode no rank reads parameters before the first step has closed.
            waits = rank.number != 0 and job.mode != "SYNC"
            return self._dense.ask(rank.session) if waits else None
        if rank.step == 0 or job.mode == "ASYNC" and self._dense is None:
            return None
        if self._dense is not None:
            return self._dense.start(
                rank.session, rank.step, job.wait_timeout, reuse=job.mode == "SYNC"
            )
        # Any row tells that the mode lets the rank begin its step: lookups wait only briefly then.
        table = self._lookups[0].handles[0].table(job.client)
        return rank.session.pull(
            [pull_item(table, [0])], step=rank.step, timeout=job.wait_timeout
        )

    def is_ready(self, job: job_module.Job, rank: Rank) -> bool:
        """Whether the parameters have arrived, or rank 0 has set them if a pull does not wait."""
        if self._dense is None:
            return True
        if rank.step > 0:
            return self._dense.has_arrived(rank.step)
        return rank.number == 0 or job.mode == "SYNC" or self._dense.is_assigned()

    def begin(self, job: job_module.Job, rank: Rank) -> None:
        """Before a batch: the parameters of its step."""
        if rank.step >= job.begin_at:
            self._rates.advance(
                rank.step - job.begin_at, lambda: [group["lr"] for group in self.param_groups]
            )
            # With the step, also if the program forgets to end it.
            if rank.number == 0:
                self._push_rates(rank, rank.step - job.begin_at)
        if self._dense is None:
            return
        if rank.step == 0:
            if rank.number == 0:
                self._dense.assign(job.client, rank.session)
            job.end_step([])
            return
        self._dense.forget_initial()
        self._dense.load(rank.step)

    def prefetch(self, job: job_module.Job, rank: Rank, step: int, wanted: Any) -> None:
        """The rank's next batch needs these: {module: inputs}. Pulls everything in one call."""
        fetches = [module.prefetch(inputs, rank.session, step) for module, inputs in wanted.items()]
        parts = [part for fetch in fetches for part in fetch.parts()]
        if not parts:
            return
        dense = None
        if self._dense is not None and job.mode == "SYNC":
            dense = self._dense.to_pull(step)
        pull: Future[Any] = rank.session.pull(
            parts if dense is None else parts + [dense[0]], step=step, timeout=job.wait_timeout
        )
        for fetch in fetches:
            fetch.pull = pull
        if dense is not None:
            assert self._dense is not None
            self._dense.on_pull(rank.session, step, pull, dense[1])

    def forget(self, job: job_module.Job) -> None:
        """The step has ended without step()."""
        del job
        self._forget_rows()
        super().zero_grad(set_to_none=True)

    def _forget_rows(self) -> None:
        for module in self._lookups:
            module.forget()


class SparseOptimizer:
    """Trains only the embeddings on the servers, beside DDP or any optimizer of torch.

    It has no ranks and no steps: the servers apply each push on arrival, as in an ASYNC job.

    Args:
      model: its pawl.torch modules are trained.
      client: that of the modules; they use it from now on.
      element_type: how gradients travel.
      assigns: set the rows given by from_pretrained and load_state_dict now. Exactly one of several
        processes does that, before the others train.

    torch's GradScaler works with it, as with Optimizer.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self,
        model: torch.nn.Module,
        client: Client,
        *,
        element_type: str = "float32",
        assigns: bool = False,
    ):
        self._lookups = _trained_modules(model)
        self._client = client
        self._element_type = element_type
        self._pushing: Optional[Future[None]] = None
        # For GradScaler.
        self.param_groups: list[dict[str, Any]] = [
            {"params": _CheckedGradients([], [], self._lookups)}
        ]
        for module in self._lookups:
            module.use(client)
            for handle in module.handles if assigns else ():
                handle.assign_initial(client, client.free_running)

    def step(self) -> None:
        """Pushes the gradients since the last step(), once those of that one are applied."""
        is_skipped, factor = _scaling(self)
        parts: list[CallPart] = []
        if is_skipped:
            for module in self._lookups:
                module.forget()
        else:
            parts = _row_gradients(self._lookups, factor, self._element_type)
        self.wait()
        self._pushing = self._client.free_running.push(parts) if parts else None

    def wait(self) -> None:
        """Waits until the servers have applied the last step()."""
        if self._pushing is not None:
            self._pushing.wait()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients of rows that step() has not pushed."""
        for module in self._lookups:
            module.zero_grad(set_to_none)
