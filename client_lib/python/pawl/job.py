"""A job as a training program sees it: ranks, and steps in a loop."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from pawl import _abi, data as data_module, errors, kept as kept_module
from pawl.client import Client, Status
from pawl.cluster import LocalCluster
from pawl.futures import Future
from pawl.hosted_ranks import HostedRanks
from pawl.items import pull_item
from pawl.rank import Rank, StepPart
from pawl.reporter import Reporter, progress_bar
from pawl.session import Session
from pawl.watchdog import Watchdog
from pawl.worker_folder import WorkerFolder

_log = logging.getLogger("pawl")

# How often a worker without ranks asks whether the job has ended or ranks have come to it.
_IDLE_WAIT_MS = 200
# How often a worker that waits for other ranks asks whether it has to host one of them.
_FOLLOW_INTERVAL_S = 0.05
# Extra time that other ranks wait, so that the worker can be restarted.
RESTART_S = 120.0
# How long a program that ends by an exception waits for the status.
_STATUS_TIMEOUT_S = 60.0
# Rows in a pull that only waits.
_ROWS_IN_PULL = 4096
# Errors that say nothing about the program: the same one may succeed later.
_TRANSIENT = (errors.UnavailableError, errors.DeadlineExceededError, errors.AbortedError)
# As rank and step: before the first step of any rank.
_BEFORE_STEPS = (-1, -1)
# As a number of steps: not known.
_ENDLESS = data_module.ENDLESS

_current: Optional["Job"] = None


def _follow_schedulers(schedulers: Sequence[Any]) -> None:
    """Lets the optimizers of pawl.torch step their schedulers."""
    for scheduler in schedulers:
        if not hasattr(getattr(scheduler, "optimizer", None), "follow"):
            raise errors.InvalidArgumentError(
                "schedulers: a %s is not for pawl.torch.Optimizer; step it yourself"
                % type(scheduler).__name__
            )
        scheduler.optimizer.follow(
            [other for other in schedulers if other.optimizer is scheduler.optimizer]
        )


def set_current(job: "Job") -> None:
    """Sets the job that current() returns."""
    global _current
    _current = job


def has_open() -> bool:
    """Whether pawl.init has joined a job that has not been left."""
    return _current is not None and _current.is_open


def current() -> "Job":
    """The job that pawl.init has joined. Raises FailedPreconditionError before."""
    if _current is None:
        raise errors.FailedPreconditionError("call pawl.init() first: it joins the job")
    return _current


class Job:
    """The job that this process works for; made by pawl.init. Use it from one thread."""

    def __init__(
        self,
        client: Client,
        step_timeout: float = 600.0,
        cluster: Optional[LocalCluster] = None,
    ):
        self.client = client
        # Started for this job; it ends with it.
        self._cluster = cluster
        self._step_timeout = step_timeout
        # Set from one batch to the next unless the loop waits in between.
        self._watchdog = Watchdog(step_timeout)
        description = client.job
        self.name: str = description.get("name", "")
        self.seed = int(description.get("seed", 0))
        consistency = description.get("consistency", {})
        # SYNC, BOUNDED or ASYNC.
        self.mode: str = consistency.get("mode", "SYNC")
        # If not 0, the servers drop pushes of ranks that are late, also those of their state.
        self._backup_workers = int(consistency.get("backup_workers", 0))
        # Whether a loop over steps() has finished.
        self.is_trained = False
        # Whether finish() has returned.
        self.is_finished = False
        # Called once, by close().
        self.on_close: Optional[Callable[[], None]] = None
        # 1, or what makes the mean over ranks the mean over samples where their shares differ.
        self.gradient_weight = 1.0
        self._parts: list[StepPart] = []
        self._hosted = HostedRanks(
            client,
            wait=self._wait,
            settle=self._settle,
            is_computing=lambda rank: self._computing and rank is self._rank,
            on_close=self._on_rank_closed,
        )
        # Whether each rank has samples in the step.
        self._has_all = True
        self._source: Optional[data_module.Source] = None
        # How many steps of the job come before the data's first one.
        self.begin_at = 0
        # The number of steps of the job.
        self._end = 0
        self._rank: Optional[Rank] = None
        # Whether that rank's step is being computed. The rank is not given up meanwhile.
        self._computing = False
        # The thread of the loop.
        self._thread = 0
        # The rank and the servers' step number of the latest batch; None before the first.
        self._position: Optional[tuple[int, int]] = None
        self._step = 0
        self._step_ended = False
        self._not_ready_since: Optional[float] = None
        self._kept = kept_module.Kept()
        self._states: Optional[kept_module.StateTable] = None
        # The rank whose state the kept objects have.
        self._loaded = -1
        # Pushes of the program's step, where its state is saved first.
        self._unsent: Optional[list[Any]] = None
        self._reporter = Reporter(client)
        self._warned_forgotten = False

    @property
    def rank(self) -> int:
        """The rank whose batch the program has. Raises FailedPreconditionError outside steps()."""
        return self._active().number

    @property
    def step(self) -> int:
        """The number of that batch, from 0: the rank's, over all epochs."""
        self._active()
        return self._step

    @property
    def ranks(self) -> int:
        """The number of ranks of the job; known in the loop over steps()."""
        return self._hosted.total

    @property
    def next_step(self) -> int:
        """After end_step: the servers' number of the rank's next step."""
        return self._active().step

    @property
    def wait_timeout(self) -> float:
        """Seconds that a rank waits for the others, which one process may host."""
        return self.ranks * self._step_timeout + RESTART_S

    @property
    def is_open(self) -> bool:
        """Whether this process is still a worker of the job."""
        return self.client.is_open

    @property
    def is_in_step(self) -> bool:
        """Whether this thread has a rank's batch; hosted_session() is that rank's.

        False while a batch is read, because the rank may then be given up, and in other threads
        than the loop's: a Job is used by one.
        """
        return self._computing and self._thread == threading.get_ident()

    @property
    def parts(self) -> Sequence[StepPart]:
        """Returns the parts of every step."""
        return self._parts

    def status(self) -> Status:
        """Returns the status that `pawlctl status` shows."""
        return self.client.status()

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def add_part(self, part: StepPart) -> None:
        """Lets something take part in every step, in the order in which it is added."""
        self._parts.append(part)

    def keep(self, **objects: kept_module.Stateful) -> None:
        """Saves objects with each step, and gives them their state back; call it before steps().

        Each object has state_dict() and load_state_dict(), as torch's modules, optimizers and
        schedulers do: whatever a step depends on and the servers do not have, such as parameters
        under DDP, their optimizer, moving averages, or pawl.torch.RandomState(). All objects have
        at most 64 MiB together. Their state after an iteration of the loop belongs to its step: it
        is in the same checkpoints, and a process that takes the rank over continues with it. Where
        a process hosts several ranks, each has a state of its own. Jobs with backup workers keep
        nothing: InvalidArgumentError.
        """
        self._refuse_backup_workers("Job.keep")
        if self._source is not None:
            raise errors.FailedPreconditionError("call Job.keep before the loop over steps()")
        self._kept.add(objects.items())

    def _refuse_backup_workers(self, call: str) -> None:
        if self._backup_workers > 0:
            raise errors.InvalidArgumentError(
                "%s: consistency.backup_workers is %d, so the servers drop what a late rank saves; "
                "set it to 0, or do without %s" % (call, self._backup_workers, call)
            )

    def steps(
        self,
        data: Any,
        *,
        prefetch: Optional[Callable[[Any], Any]] = None,
        schedulers: Sequence[Any] = (),
        progress: bool = False,
    ) -> Iterator[Any]:
        """The batches of this process's ranks, until all ranks of the job have had all of theirs.

        The loop must run to its end: a program that leaves it earlier leaves its ranks to others.
        Each batch is one step of one rank: compute its loss and its gradients, and end it with the
        optimizer's step(). A process hosts one rank or several, and continues at the steps that the
        servers know, so it may be killed and restarted.

        Args:
          data: a pawl.data.Source, a DataLoader with a pawl.data.Sampler as batch_sampler, or, in
            ASYNC and BOUNDED mode, any iterable of batches.
          prefetch: from a batch, {module: the module's input}. What the module looks up is then
            fetched while the previous step is computed. In SYNC mode nothing becomes stale.
          schedulers: of torch.optim.lr_scheduler, for pawl.torch's optimizer. The job steps them
            once per step; rank 0 sends what changes to the servers. Job.keep must not have them.
          progress: draw a bar of the steps on stderr. Needs the package tqdm.
        """
        self._kept.check_schedulers(schedulers)
        _follow_schedulers(schedulers)
        self._open(data)
        batches = self._batches(prefetch)
        try:
            yield from self._with_bar(batches) if progress else batches
        finally:
            self._watchdog.pause()

    def _open(self, data: Any) -> None:
        """Begins to read the data."""
        if self._source is not None:
            raise errors.FailedPreconditionError(
                "a job has one loop over steps(): give all epochs to its data, such as "
                "pawl.data.Sampler(epochs=...)"
            )
        self._source = data_module.source_of(data, self.mode)
        self.begin_at = max((part.steps_before_data for part in self._parts), default=0)
        self._hosted.read(self._source, self.begin_at)
        self._end = self.begin_at + self._source.step_count()
        self._states = kept_module.StateTable(
            self.client, self.mode, may_have_holes=self._backup_workers > 0
        )

    def _with_bar(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, with a bar of the steps."""
        steps = self._end - self.begin_at if self._end < _ENDLESS else None
        with contextlib.closing(progress_bar(steps)) as bar:
            for batch in batches:
                yield batch
                # The bar follows the rank that is ahead.
                bar.update(max(0, self._step + 1 - bar.n))

    def _batches(self, prefetch: Optional[Callable[[Any], Any]]) -> Iterator[Any]:
        source, begin_at, end = self._source, self.begin_at, self._end
        assert source is not None
        # A copy: states share the objects' tensors.
        initial = kept_module.decode(kept_module.encode(self._kept.save()))
        while True:
            self._follow()
            rank = self._hosted.next(end)
            if rank is None:
                if self._is_trained(end):
                    self.is_trained = True
                    return
                continue
            self._rank, self._step_ended = rank, False
            try:
                if not self._wait_for_step(rank, end):
                    continue
                self._position = (rank.number, rank.step)
                self._load_state(rank, initial)
                if rank.step < begin_at:
                    self._begin(rank)
                    if not self._step_ended:
                        self.end_step([])
                    continue
                mine, all_samples = source.share(rank.step - begin_at, rank.number, self.ranks)
                if mine > 0 and not self._read(rank):
                    self._end_stream(rank)
                    continue
                if self.mode == "SYNC":
                    self.gradient_weight = mine * self.ranks / all_samples
                self._has_all = all_samples >= self.ranks
                self._begin(rank)
                if mine == 0:
                    # An epoch's last step may have fewer samples than ranks.
                    self.end_step([])
                    self._save_and_send(rank)
                    continue
                if isinstance(source, data_module.Stream):
                    mine = data_module.samples_of(rank.batch)
                batch, step = rank.batch, rank.step
                rank.batch, rank.has_batch = None, False
                if prefetch is not None and self._has_samples(rank, step + 1) and self._read(rank):
                    wanted = prefetch(rank.batch)
                    for part in self._parts:
                        part.prefetch(self, rank, step + 1, wanted)
                self._step = step - begin_at
                self._watchdog.watch()
                yield batch
                if not self._step_ended:
                    self._end_forgotten_step()
                self._save_and_send(rank)
                rank.count_batch(mine)
                self._report()
            finally:
                self._rank = self._unsent = None
                self._computing = False

    def _begin(self, rank: Rank) -> None:
        """Begins to compute the rank's step."""
        self._computing = True
        self._thread = threading.get_ident()
        for part in self._parts:
            part.begin(self, rank)

    def part_of(self, length: int) -> slice:
        """The rank's share of something that all ranks divide, such as samples to evaluate on."""
        rank = self._active().number
        return slice(length * rank // self.ranks, length * (rank + 1) // self.ranks)

    def wait_for_version(self) -> bool:
        """Whether the tables have one version that stays: that of this step, or of the job's end.

        In the loop of a SYNC job no partition closes a step that this process's rank has not ended.
        This waits until every partition has closed the steps before, so that all have the version
        of Job.step until the rank ends its step. After the loop, if it has ended for all ranks, the
        version is the last. False: in the loop of a job that is not SYNC or has backup workers,
        before the loop, and after that of a stream while other processes may train.
        """
        if self._rank is None:
            if self.is_trained and self._end < _ENDLESS:
                return True
            return self.client.describe()["state"] in ("FINISHING", "COMPLETED")
        if self.mode != "SYNC" or self._backup_workers > 0:
            return False
        assert self._states is not None
        table = self._states.table
        keys = table.key_of_each_partition()
        for begin in range(0, keys.size, _ROWS_IN_PULL):
            some = keys[begin : begin + _ROWS_IN_PULL]
            self.wait_for(self._rank.session.pull([pull_item(table, some, distinct=True)]))
        return True

    def evaluate(self, scores: Any, labels: Any) -> Future[dict[str, Any]]:
        """Reports the rank's share of an evaluation by logistic loss, without waiting.

        Every rank calls this in the same steps, before the optimizer's step(), and ends the step
        only when all have called. So in SYNC mode the tables have one version, that of the step's
        begin. A rank whose data has ended takes no part any more. The result has auc (exact, over
        the samples of all ranks), logloss, accuracy, samples and step. Do not wait for it in the
        loop: the process may host a rank that it waits for.
        `pawlctl status` shows the latest evaluation, metrics.json all. Jobs with backup workers
        refuse it: a rank's successor would not know how many evaluations there were.

        Args:
          scores: logits, one a sample: an array or tensor.
          labels: 0 or 1, one a sample.
        """
        rank = self._active()
        self._refuse_backup_workers("Job.evaluate")
        if self._step_ended:
            raise errors.FailedPreconditionError("call evaluate before the optimizer's step()")
        if not self._has_all:
            raise errors.FailedPreconditionError(
                "evaluate: this step has fewer samples than ranks, and one of these does not take "
                "part; evaluate in another step"
            )
        if rank.evaluation is not None:
            raise errors.FailedPreconditionError("evaluate: this step has an evaluation already")
        header = {"evaluation": rank.evaluations + 1, "step": rank.step, "rank": rank.number}
        result = self._reporter.report_evaluation(header, scores, labels)
        rank.evaluations += 1
        rank.evaluation = result
        return result

    def end_step(self, items: list[Any]) -> None:
        """Pushes the items as the rank's gradients and ends its step, without waiting."""
        rank = self._active()
        if self._step_ended:
            raise errors.FailedPreconditionError(
                "step %d of rank %d has ended: call the optimizer's step() once per batch"
                % (rank.step - 1, rank.number)
            )
        rank.step += 1
        self._step_ended = True
        if rank.step > self.begin_at:
            # All changes until the program asks for the next batch belong to this step.
            self._unsent = items
        else:
            self._send(rank, items)

    def _save_and_send(self, rank: Rank) -> None:
        """Ends the rank's iteration of the loop."""
        rank.unsent, self._unsent = self._unsent, None
        # Without kept objects, only an evaluation or another learning rate changes it.
        if self._kept or rank.evaluation is not None or rank.state is None or rank.rates_changed:
            rank.state = self._encode_state(self._kept.save(), rank.evaluations, rank.rates)
            rank.rates_changed = False
        self._computing = False
        self._send_evaluated()

    def _has_samples(self, rank: Rank, step: int) -> bool:
        assert self._source is not None
        return (
            step < self._end
            and self._source.share(step - self.begin_at, rank.number, self.ranks)[0] > 0
        )

    def _end_stream(self, rank: Rank) -> None:
        """The rank's stream has ended. Others must not wait for it."""
        if self._end < _ENDLESS:
            raise errors.FailedPreconditionError(
                "the data of rank %d ends at step %d; step_count() says %d"
                % (rank.number, rank.step - self.begin_at, self._end - self.begin_at)
            )
        rank.step_count = rank.step
        self._finish_rank(rank)

    def _finish_rank(self, rank: Rank) -> None:
        self._settle(rank)
        self._hosted.close(rank.number)
        finishing = self._reporter.finish_rank(rank.number, self._progress())
        self._pause_watchdog()
        # The scheduler of a job that is COMPLETED may have ended, and its answer may be lost.
        while not finishing.done(_FOLLOW_INTERVAL_S):
            if self.client.describe()["state"] == "COMPLETED":
                break
            # Its last step may close only when this process's other ranks have ended it.
            self._send_evaluated()
        else:
            finishing.wait()
        self._hosted.finish(rank.number)

    def _send_evaluated(self) -> None:
        """Ends steps that wait for an evaluation only.

        A rank that dies before all have reported must report again, at the same parameters. So no
        rank ends the step before.
        """
        for rank in self._hosted.ranks.values():
            if rank.unsent is None or rank.evaluation is not None and not rank.evaluation.done():
                continue
            if rank.evaluation is not None:
                rank.evaluation.wait()
                rank.evaluation = None
            items, rank.unsent = rank.unsent, None
            self._send(rank, items)

    def _send(self, rank: Rank, items: list[Any]) -> None:
        """Pushes the items and the rank's state, and ends the step before rank.step."""
        self._settle(rank)
        # In earlier steps rank 0 may still assign, and nothing may be pushed.
        if rank.step > self.begin_at:
            assert self._states is not None and rank.state is not None
            items = items + self._states.items(rank.number, rank.step, rank.state)
        if items:
            rank.session.push(items)
        # Its error is that of the pushes, if one fails.
        rank.ending = rank.session.end_step()

    def _encode_state(
        self, kept: dict[str, Any], evaluations: int = 0, rates: Optional[list[float]] = None
    ) -> bytes:
        """The saved state of a rank: objects, settings that must not change, a count, rates."""
        identity = getattr(self._source, "identity", None)
        settings = {"ranks": self.ranks, **(identity() if identity is not None else {})}
        state = {"settings": settings, "kept": kept, "evaluations": evaluations}
        if rates is not None:
            state["rates"] = rates
        return kept_module.encode(state)

    def _load_state(self, rank: Rank, initial: dict[str, Any]) -> None:
        """Gives the kept objects the rank's state, once its step can begin."""
        if rank.state is None:
            self._pause_watchdog()
            found = None
            if rank.reading is not None:
                assert self._states is not None
                found = self._states.finish_read(
                    rank.session, rank.number, rank.step, rank.reading.wait()
                )
                rank.reading = None
            if found is None and rank.step > self.begin_at and self._kept:
                raise errors.FailedPreconditionError(
                    "rank %d has done %d steps without Job.keep" % (rank.number, rank.step)
                )
            rank.state = found or self._encode_state(initial)
            decoded = kept_module.decode(rank.state)
            rank.evaluations = decoded["evaluations"]
            # Servers may have dropped the rates of a late rank, and the state with them.
            if self._backup_workers == 0:
                rank.rates = decoded.get("rates")
            kept_module.check_same(
                decoded["settings"],
                kept_module.decode(self._encode_state({}))["settings"],
            )
        if self._kept and self._loaded != rank.number:
            self._kept.load(kept_module.decode(rank.state)["kept"])
        self._loaded = rank.number

    def finish(self) -> None:
        """Tells the scheduler that the work is done, and waits until all workers have said so.

        A rank that has done all its steps may still come to this process, because its worker leaves
        or dies. Happens at the end of the program, unless it ends by an exception or SIGTERM.
        Raises the job's error if it has failed, was stopped, or has another process in place of
        this one.
        """
        while True:
            for rank in list(self._hosted.ranks.values()):
                if rank.step < min(self._end, rank.step_count):
                    raise errors.InternalError(
                        "rank %d came after the loop and has done %d of %d steps; this worker must "
                        "be restarted" % (rank.number, rank.step, self._end)
                    )
                self._finish_rank(rank)
            is_running = self._pause()
            if not is_running:
                self._check_end()
            # A stream's length is not known, and so not whether another rank has ended.
            if not is_running or self._end >= _ENDLESS:
                self.is_finished = True
                return
            try:
                self._follow()
            except errors.Error:
                # The job may have ended meanwhile.
                if self._pause():
                    raise

    def report_loss(self, loss: float) -> None:
        """Shown by `pawlctl status` and `pawl run` with the next progress."""
        self._reporter.set_loss(loss)

    def log(
        self,
        name: Union[str, Mapping[str, Any]],
        value: Any = None,
        *,
        step: Optional[int] = None,
    ) -> None:
        """Reports figures of the program: log("ctr", value), or log({"ctr": value, ...}).

        `pawlctl status`, curve.jsonl, TensorBoard and Prometheus show the latest of each name: the
        highest step counts, and of equal steps the last report. So log a figure from one rank (`if
        job.rank == 0`), or give ranks names of their own. It does not wait.

        Args:
          name: 1 to 128 letters, digits and "_./-"; at most 256 names in a job.
          value: a number, or a tensor or array of one. One that is not finite is left out, with one
            warning for each name.
          step: default: that of the loop (Job.step); required outside of the loop.

        Raises:
          InvalidArgumentError: the name, or the value is no number.
          ResourceExhaustedError: more than 256 names.
        """
        figures = name if isinstance(name, Mapping) else {name: value}
        number = self.step if step is None else int(step)
        if number < 0:
            raise errors.InvalidArgumentError("step is %d; the least is 0" % number)
        self._reporter.log(figures, number)

    def fail(self, reason: str) -> None:
        """Ends the job, for all its workers, as FAILED for this reason."""
        # A failure is the job's, whichever rank reports it.
        rank = 0 if self._position is None else self._position[0]
        reason = reason or "a worker gave no reason"
        self._reporter.finish_rank(rank, self._progress(), failure=reason).wait()

    def on_exception(self, error: BaseException) -> None:
        """The program ends by an exception. Fails the job if it ended so before, at the same step.

        A restarted program would fail repeatedly (bad data, a mistake in the model). Before the
        job's first step, an argument that Pawl refuses fails the job at once. A program that fails
        before its first batch does not fail a job that others train.
        """
        folder = WorkerFolder.from_environment()
        is_own = isinstance(error, Exception) and not isinstance(error, errors.CancelledError)
        if folder is None or not is_own or not self.is_open:
            return
        is_usage = False
        if self._position is None:
            if isinstance(error, _TRANSIENT) or self._has_begun():
                return
            is_usage = isinstance(error, errors.InvalidArgumentError)
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        if folder.is_repeated(*(self._position or _BEFORE_STEPS), lines[-1]) or is_usage:
            with contextlib.suppress(errors.Error):
                # The most telling line first: texts are cut at their end.
                self.fail("".join([lines[-1]] + lines))

    def _has_begun(self) -> bool:
        """Whether the job may have ended a step."""
        try:
            status = self.client.status(timeout=_STATUS_TIMEOUT_S)
        except errors.Error:
            return True
        # Those of the slowest rank, and of each process: other ranks may have trained.
        steps = [status.get("steps", 0), status.get("counters", {}).get("step", 0)]
        steps += [node.get("worker", {}).get("steps_max", 0) for node in status.get("nodes", [])]
        return any(int(number) > 0 for number in steps)

    def close(self) -> None:
        """Leaves the job. Ranks that are not finished go to other workers."""
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()
        # Models and data, which the program may want to free.
        self._parts, self._source, self._kept = [], None, kept_module.Kept()
        self._hosted.forget()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        del kind, trace
        try:
            if error is not None:
                self.on_exception(error)
            elif self.is_trained:
                try:
                    self.finish()
                except Exception as raised:
                    self.on_exception(raised)
                    raise
        finally:
            self.close()

    def hosted_session(self) -> Session:
        """The session of the rank whose batch the program has."""
        return self._active().session

    def wait_for(self, call: Future[Any]) -> Any:
        """Waits for a call of a rank that may wait for other ranks, and returns its result.

        Such a rank may come to this process meanwhile. Taking it over ends a step that its
        predecessor has ended in part.
        """
        while not call.done(_FOLLOW_INTERVAL_S):
            self._follow()
        return call.wait()

    def _wait_for_step(self, rank: Rank, end: int) -> bool:
        """Waits for the data of the rank's step. False: a rank that is behind has arrived."""
        calls = [part.start(self, rank) for part in self._parts]
        if rank.state is None and rank.step > 0 and rank.reading is None:
            assert self._states is not None
            rank.reading = self._states.start_read(
                rank.session, rank.number, self.wait_timeout
            )
        calls.append(rank.reading)
        for call in calls:
            while call is not None and not call.done(_FOLLOW_INTERVAL_S):
                self._pause_watchdog()
                self._follow()
                # `pawlctl status` compares the steps to name the rank that the others wait for.
                self._report()
                if self._hosted.next(end) is not rank:
                    return False
        if all(part.is_ready(self, rank) for part in self._parts):
            self._not_ready_since = None
            return True
        now = time.monotonic()
        self._not_ready_since = self._not_ready_since or now
        if now - self._not_ready_since > self._step_timeout + RESTART_S:
            raise errors.DeadlineExceededError(
                "rank 0 has not set the parameters within %g s" % (self._step_timeout + RESTART_S)
            )
        self._pause()
        return False

    def _active(self) -> Rank:
        if self._rank is None:
            raise errors.FailedPreconditionError("only inside of the loop over job.steps(...)")
        return self._rank

    def _settle(self, rank: Rank) -> None:
        """Waits for the end of the rank's previous step."""
        if rank.ending is not None:
            ending, rank.ending = rank.ending, None
            self._wait(ending)

    def _wait(self, call: Future[Any]) -> Any:
        if not call.done():
            self._pause_watchdog()
        return call.wait()

    def _pause_watchdog(self) -> None:
        """Pauses the watchdog while the program waits for other ranks or servers."""
        if not self._computing:
            self._watchdog.pause()

    def _read(self, rank: Rank) -> bool:
        """Reads the rank's next batch unless it has been read. False: the data has ended."""
        if not rank.has_batch:
            try:
                rank.batch = next(rank.batches)
            except StopIteration:
                return False
            rank.has_batch = True
        return True

    def _end_forgotten_step(self) -> None:
        if not self._warned_forgotten:
            self._warned_forgotten = True
            _log.warning(
                "the loop went to the next batch without the optimizer's step(): the gradients of "
                "step %d of rank %d are dropped (said once)",
                self._active().step,
                self._active().number,
            )
        for part in self._parts:
            part.forget(self)
        self.end_step([])

    def _follow(self) -> None:
        """Hosts the ranks that the scheduler assigns to this process."""
        self._check_ends()
        self._send_evaluated()
        self._hosted.follow()

    def _check_ends(self) -> None:
        """Raises the error of a step that could not be ended: calls of the next would wait for it.

        AbortedError is left to the next call of the rank: another process may have it by now.
        """
        for rank in self._hosted.ranks.values():
            if rank.ending is not None and rank.ending.done():
                with contextlib.suppress(errors.AbortedError):
                    rank.ending.wait()

    def _on_rank_closed(self, number: int) -> None:
        if self._states is not None:
            self._states.forget(number)
        if self._loaded == number:
            self._loaded = -1

    def _is_trained(self, end: int) -> bool:
        """Whether all ranks of the job have ended their steps. Waits a moment if not.

        Until then a rank of a worker that dies may come to this process.
        """
        self._pause_watchdog()
        for rank in self._hosted.ranks.values():
            if rank.unsent is not None and rank.evaluation is not None:
                rank.evaluation.done(_FOLLOW_INTERVAL_S)
                self._report()
                return False
        for rank in list(self._hosted.ranks.values()):
            while rank.ending is not None and not rank.ending.done(_FOLLOW_INTERVAL_S):
                self._follow()
                if self._hosted.next(end) is not None:
                    return False
            # Another incarnation may have taken its place meanwhile.
            if self._hosted.ranks.get(rank.number) is rank:
                self._settle(rank)
        self._report(now=True)
        if end >= _ENDLESS:
            # A worker that has never had a rank stands by for others.
            if self._hosted.finished and not self._hosted.ranks:
                return True
        elif int(self.status().get("steps", 0)) >= end:
            return True
        if self._pause():
            return False
        self._check_end()
        return True

    def _check_end(self) -> None:
        """Raises the error of a job that has ended before its work was done."""
        state = self.client.describe()
        if state["state"] in ("COMPLETED", "FINISHING"):
            return
        if state["code"] != 0:
            raise errors.error_of(state["code"], state["error"])
        raise errors.FailedPreconditionError("the job is %s" % state["state"])

    def _pause(self) -> bool:
        """Waits a moment, or until the job ends. Returns whether it still runs."""
        self._pause_watchdog()
        code = _abi.invoke("pawl_wait_for_end", self.client.handle, _IDLE_WAIT_MS)
        return _abi.check(code) == _abi.PENDING

    def _leave(self) -> None:
        """Gives the ranks to other workers and ends the program: an operator has asked for it."""
        self._hosted.assigned = {}
        while self._hosted.ranks:
            self._hosted.give_up_others()
            for rank in self._hosted.ranks.values():
                if rank.ending is not None:
                    rank.ending.done(_FOLLOW_INTERVAL_S)
        self.close()
        _log.info("this worker leaves the job, as an operator has asked")
        raise SystemExit(0)

    def _progress(self) -> dict[str, Any]:
        return {
            **self._hosted.progress(),
            "steps_total": self._end if self._end < _ENDLESS else 0,
        }

    def _report(self, now: bool = False) -> None:
        if not now and not self._reporter.is_due():
            return
        if self.client.describe()["leave_requested"]:
            self._leave()
        self._reporter.send_progress(self._progress())
