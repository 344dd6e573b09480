"""A job as a training program sees it: ranks, and steps in a loop."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Iterator, Optional, Protocol, Sequence

from pawl import (
    _abi,
    data as data_module,
    errors,
    evaluation as evaluation_module,
    kept as kept_module,
)
from pawl.client import Client
from pawl.futures import Future
from pawl.session import Session
from pawl.status import Status
from pawl.watchdog import Watchdog
from pawl.worker_folder import WorkerFolder

_log = logging.getLogger("pawl")

# How often a worker without ranks asks whether the job has ended or ranks have come to it.
_IDLE_WAIT_MS = 200
# How often a worker that waits for other ranks asks whether one of them has come to it.
_FOLLOW_INTERVAL_S = 0.05
# How often progress goes to the scheduler.
_PROGRESS_INTERVAL_S = 0.5
# How long a rank's step may take, unless pawl.init or PAWL_STEP_TIMEOUT_S says otherwise.
_STEP_TIMEOUT_S = 600.0
# Extra time that other ranks wait, so that the worker can be restarted.
_RESTART_S = 120.0
# As a number of steps: not known.
_ENDLESS = data_module.ENDLESS

_current: Optional["Job"] = None


def current() -> "Job":
    """The job that pawl.init has joined. Raises FailedPreconditionError before."""
    if _current is None:
        raise errors.FailedPreconditionError("call pawl.init() first: it joins the job")
    return _current


class StepPart(Protocol):
    """Something that takes part in every step, such as pawl.torch's optimizer."""

    # Steps of the job that it needs for itself before the first batch.
    steps_before_data: int

    def start(self, job: "Job", rank: "Rank") -> Optional[Future[Any]]:
        """Fetches what the rank's step needs; a call that ends when it is here, or None.

        Called again for the same step until begin is.
        """

    def is_ready(self, job: "Job", rank: "Rank") -> bool:
        """Whether the step can begin, now that start's call has ended; if not, start again."""

    def begin(self, job: "Job", rank: "Rank") -> None:
        """Before the rank's batch is given to the program."""

    def prefetch(self, job: "Job", rank: "Rank", step: int, wanted: Any) -> None:
        """Starts to fetch what steps()'s `prefetch` has returned for the rank's next batch."""

    def forget(self, job: "Job") -> None:
        """The program has ended the step without Job.end_step: drop what it has recorded."""


class Rank:
    """A rank that this process hosts."""

    def __init__(
        self, number: int, incarnation: int, session: Session, batches: Iterator[Any], step: int
    ):
        self.number = number
        self.incarnation = incarnation
        self.session = session
        self.batches = batches
        self.step = step
        self.samples = 0
        # The batch of `step`, if it has been read.
        self.batch: Any = None
        self.has_batch = False
        self.ending: Optional[Future[None]] = None
        # The kept objects' states when its next step begins, encoded; None: not read yet.
        self.state: Optional[bytes] = None
        self.reading: Optional[Future[Any]] = None
        # How many evaluations it has reported, and the latest.
        self.evaluations = 0
        self.evaluation: Optional[Future[Any]] = None
        # The items of a step that waits for its evaluation; None: no step waits.
        self.unsent: Optional[list[Any]] = None
        # Known once a stream has ended.
        self.step_count = _ENDLESS


class Job:
    """The job that this process works for; made by pawl.init. Use it from one thread."""

    def __init__(self, client: Client, step_timeout: float = _STEP_TIMEOUT_S):
        self.client = client
        self._step_timeout = step_timeout
        # Set from one batch to the next unless the loop waits in between.
        self._watchdog = Watchdog(step_timeout)
        description = client.job
        self.name: str = description.get("name", "")
        self.seed = int(description.get("seed", 0))
        # SYNC, BOUNDED or ASYNC.
        self.mode: str = description.get("consistency", {}).get("mode", "SYNC")
        # The number of ranks of the job.
        self.ranks = 0
        # Whether a loop over steps() has come to its end.
        self.is_trained = False
        # Whether finish() has come to its end.
        self._is_finished = False
        # 1, or what makes the mean over ranks the mean over samples where their shares differ.
        self.gradient_weight = 1.0
        self._parts: list[StepPart] = []
        self._hosted: dict[int, Rank] = {}
        # {rank: incarnation} of the latest assignment, without the finished ones.
        self._assigned: dict[int, int] = {}
        self._finished: set[int] = set()
        # Whether each rank has samples in the step.
        self._has_all = True
        self._source: Optional[data_module.Source] = None
        # How many steps of the job come before the data's first one.
        self.begin_at = 0
        # The number of steps of the job.
        self._end = 0
        # {rank: (steps, samples)} of all that this process has hosted, for progress.
        self._done: dict[int, tuple[int, int]] = {}
        self._version = 0
        self._assignment: Optional[Future[Any]] = None
        self._rank: Optional[Rank] = None
        # Whether that rank's step is being computed. The rank is not given up meanwhile.
        self._computing = False
        # The rank and the servers' step number of the latest batch; None before the first.
        self._position: Optional[tuple[int, int]] = None
        self._step = 0
        self._step_ended = False
        self._reported_at = 0.0
        self._not_ready_since: Optional[float] = None
        self._kept = kept_module.Kept()
        self._states: Optional[kept_module.StateTable] = None
        # The rank whose state the kept objects have.
        self._loaded = -1
        # What the program's step pushes, where its state is saved first.
        self._unsent: Optional[list[Any]] = None
        self._loss = 0.0
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
    def next_step(self) -> int:
        """After end_step: the servers' number of the rank's next step."""
        return self._active().step

    @property
    def is_open(self) -> bool:
        """Whether this process is still a worker of the job."""
        return self.client.is_open

    @property
    def parts(self) -> Sequence[StepPart]:
        """What takes part in every step."""
        return self._parts

    def status(self) -> Status:
        """What `pawlctl status` shows."""
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
        a process hosts several ranks, each has a state of its own.
        """
        if self._source is not None:
            raise errors.FailedPreconditionError("call Job.keep before the loop over steps()")
        self._kept.add(objects.items())

    def steps(
        self,
        data: Any,
        *,
        prefetch: Optional[Callable[[Any], Any]] = None,
        schedulers: Sequence[Any] = (),
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
            once per step; rank 0 sends what changes to the servers.
        """
        begin_at = max((part.steps_before_data for part in self._parts), default=0)
        for scheduler in schedulers:
            if not hasattr(getattr(scheduler, "optimizer", None), "follow"):
                raise errors.InvalidArgumentError(
                    "schedulers: a %s is not for pawl.torch.Optimizer; step it yourself"
                    % type(scheduler).__name__
                )
            scheduler.optimizer.follow(
                [other for other in schedulers if other.optimizer is scheduler.optimizer]
            )
        if self._source is not None:
            raise errors.FailedPreconditionError(
                "a job has one loop over steps(): give all epochs to its data, such as "
                "pawl.data.Sampler(epochs=...)"
            )
        source = data_module.source_of(data, self.mode)
        self._source, self.begin_at = source, begin_at
        self._end = begin_at + source.step_count()
        self._states = kept_module.StateTable(self.client, self.mode)
        try:
            yield from self._batches(prefetch)
        finally:
            self._watchdog.pause()

    def _batches(self, prefetch: Optional[Callable[[Any], Any]]) -> Iterator[Any]:
        source, begin_at, end = self._source, self.begin_at, self._end
        assert source is not None
        # A copy: states share the objects' tensors.
        initial = kept_module.decode(kept_module.encode(self._kept.save()))
        while True:
            self._follow()
            rank = self._next_rank(end)
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
                    self._computing = True
                    for part in self._parts:
                        part.begin(self, rank)
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
                self._computing = True
                for part in self._parts:
                    part.begin(self, rank)
                if mine == 0:
                    # An epoch's last step may have fewer samples than ranks.
                    self.end_step([])
                    self._save_and_send(rank)
                    continue
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
                rank.samples += mine
                self._report()
            finally:
                self._rank = self._unsent = None
                self._computing = False

    def part_of(self, length: int) -> slice:
        """The rank's share of something that all ranks divide, such as samples to evaluate on."""
        rank = self._active().number
        return slice(length * rank // self.ranks, length * (rank + 1) // self.ranks)

    def evaluate(self, scores: Any, labels: Any) -> Future[dict[str, Any]]:
        """Reports the rank's share of an evaluation by logistic loss, without waiting.

        Every rank calls this in the same steps, before the optimizer's step(), and ends the step
        only when all have called. So in SYNC mode the tables have one version, that of the step's
        begin. The result has auc (exact, over the samples of all ranks), logloss, accuracy, samples
        and step. Do not wait for it in the loop: the process may host a rank that it waits for.
        `pawlctl status` shows the latest evaluation, metrics.json all.

        Args:
          scores: logits, one a sample: an array or tensor.
          labels: 0 or 1, one a sample.
        """
        rank = self._active()
        if self._step_ended:
            raise errors.FailedPreconditionError("call evaluate before the optimizer's step()")
        header = {"evaluation": rank.evaluations + 1, "step": rank.step, "rank": rank.number}
        last: Optional[Future[dict[str, Any]]] = None
        if not self._has_all:
            raise errors.FailedPreconditionError(
                "evaluate: this step has fewer samples than ranks, and one of these does not take "
                "part; evaluate in another step"
            )
        if rank.evaluation is not None:
            raise errors.FailedPreconditionError("evaluate: this step has an evaluation already")
        for part in evaluation_module.parts(header, scores, labels):
            if last is not None:
                last.wait()
            last = self.client.call(
                "pawl_report_evaluation", json.dumps(part).encode(), 0, convert=_evaluation_of
            )
        rank.evaluations += 1
        rank.evaluation = last
        assert last is not None
        return last

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
            # What the program changes until it asks for the next batch belongs to this step.
            self._unsent = items
        else:
            self._send(rank, items)

    def _save_and_send(self, rank: Rank) -> None:
        """The rank's iteration of the loop has come to its end."""
        rank.unsent, self._unsent = self._unsent, None
        # Without kept objects, only an evaluation changes it.
        if self._kept or rank.evaluation is not None or rank.state is None:
            rank.state = self._encode_state(self._kept.save(), rank.evaluations)
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
        self._close(rank.number)
        progress = json.dumps(self._progress()).encode()
        self._wait(self.client.call("pawl_finish_rank", rank.number, progress, 0))
        self._finished.add(rank.number)
        self._assigned.pop(rank.number, None)

    def _send_evaluated(self) -> None:
        """Ends steps that wait for an evaluation only.

        A rank that dies before all have reported must report again, at the same parameters. So no
        rank ends the step before.
        """
        for rank in self._hosted.values():
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

    def _encode_state(self, kept: dict[str, Any], evaluations: int = 0) -> bytes:
        """What is saved for a rank: the objects, settings that must not change, and a count."""
        identity = getattr(self._source, "identity", None)
        settings = {"ranks": self.ranks, **(identity() if identity is not None else {})}
        return kept_module.encode(
            {"settings": settings, "kept": kept, "evaluations": evaluations}
        )

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
        or dies. Happens at the end of the program, unless it ends by an exception.
        """
        while True:
            for rank in list(self._hosted.values()):
                if rank.step < min(self._end, rank.step_count):
                    raise errors.InternalError(
                        "rank %d came after the loop and has done %d of %d steps; this worker must "
                        "be restarted" % (rank.number, rank.step, self._end)
                    )
                self._finish_rank(rank)
            # A stream's length is not known, and so not whether another rank has ended.
            if self._end >= _ENDLESS or not self._pause():
                self._is_finished = True
                return
            try:
                self._follow()
            except errors.Error:
                # The job may have ended meanwhile.
                if self._pause():
                    raise

    def report_loss(self, loss: float) -> None:
        """Shown by `pawlctl status` and `pawl run` with the next progress."""
        # Not a number: of no samples, or the training diverges.
        if math.isfinite(loss):
            self._loss = float(loss)

    def fail(self, reason: str) -> None:
        """Ends the job, for all its workers, as FAILED for this reason.

        Only after the first batch has begun.
        """
        if self._position is None:
            raise errors.FailedPreconditionError("Job.fail before the loop over steps()")
        progress = json.dumps({**self._progress(), "failure": reason[:4000]}).encode()
        self.client.call("pawl_finish_rank", self._position[0], progress, 0).wait()

    def on_exception(self, error: BaseException) -> None:
        """The program ends by an exception. Fails the job if it ended so before, at the same step.

        A program that is restarted would do so for ever (bad data, a mistake in the model).
        """
        folder = WorkerFolder.from_environment()
        is_own = isinstance(error, Exception) and not isinstance(error, errors.CancelledError)
        if folder is None or not is_own or not self.is_open or self._position is None:
            return
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        if folder.is_repeated(*self._position, lines[-1]):
            with contextlib.suppress(errors.Error):
                # The most telling line first: texts are cut at their end.
                self.fail("".join([lines[-1]] + lines))

    def close(self) -> None:
        """Leaves the job. Ranks that are not finished go to other workers."""
        self.client.close()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        del trace
        if kind is None and self.is_trained:
            self.finish()
        if error is not None:
            self.on_exception(error)
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
        """Waits for what the rank's step needs. False: another rank, which is behind, has come."""
        calls = [part.start(self, rank) for part in self._parts]
        if rank.state is None and rank.step > 0 and rank.reading is None:
            assert self._states is not None
            rank.reading = self._states.start_read(rank.session, rank.number)
        calls.append(rank.reading)
        for call in calls:
            while call is not None and not call.done(_FOLLOW_INTERVAL_S):
                self._pause_watchdog()
                self._follow()
                if self._next_rank(end) is not rank:
                    return False
        if all(part.is_ready(self, rank) for part in self._parts):
            self._not_ready_since = None
            return True
        now = time.monotonic()
        self._not_ready_since = self._not_ready_since or now
        if now - self._not_ready_since > self._step_timeout + _RESTART_S:
            raise errors.DeadlineExceededError(
                "rank 0 has not set the parameters within %g s" % (self._step_timeout + _RESTART_S)
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
        """Other ranks, or the servers, may take their time now; the program has not the turn."""
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
        """Hosts the ranks that the scheduler assigns to this process, except finished ones."""
        self._ask_for_assignment()
        self._give_up_others()
        for number, incarnation in sorted(self._assigned.items()):
            hosted = self._hosted.get(number)
            if hosted is not None and hosted.incarnation != incarnation:
                if self._computing and hosted is self._rank:
                    continue
                self._close(number)
                hosted = None
            if hosted is None:
                self._take_over(number, incarnation)

    def _ask_for_assignment(self) -> None:
        self._send_evaluated()
        if self._assignment is None:
            self._assignment = self.client.call(
                "pawl_assignment", self._version, 0, convert=json.loads
            )
        if self._version != 0 and not self._assignment.done():
            return
        try:
            answer = self._wait(self._assignment)
        except errors.DeadlineExceededError:
            self._assignment = None
            return
        self._assignment = None
        self._version = int(answer.get("version", 0))
        self.ranks = int(answer.get("logical_workers_total", 0))
        self._assigned = {
            int(rank.get("rank", 0)): int(rank.get("incarnation", 0))
            for rank in answer.get("logical_workers", [])
            if int(rank.get("rank", 0)) not in self._finished
        }

    def _take_over(self, number: int, incarnation: int) -> None:
        self._wait(self.client.call("pawl_take_over", number, 0))
        session = Session(
            self.client, _abi.invoke("pawl_rank", self.client.handle, number), number
        )
        step = session.step
        assert self._source is not None
        first = max(0, step - self.begin_at)
        batches = self._source.batches(number, self.ranks, first)
        rank = Rank(number, incarnation, session, batches, step)
        # Its predecessors' too: each sample counts once.
        rank.samples = sum(self._source.share(done, number, self.ranks)[0] for done in range(first))
        self._hosted[number] = rank

    def _next_rank(self, end: int) -> Optional[Rank]:
        """The hosted rank that is behind the others; None if all have ended their steps."""
        waiting = [
            rank
            for rank in self._hosted.values()
            if rank.number in self._assigned
            and rank.unsent is None
            and rank.step < min(end, rank.step_count)
        ]
        return min(waiting, key=lambda rank: (rank.step, rank.number)) if waiting else None

    def _close(self, number: int) -> None:
        rank = self._hosted.pop(number)
        steps = _ended_steps(rank)
        if self._states is not None:
            self._states.forget(number)
        if self._loaded == number:
            self._loaded = -1
        self._done[number] = (steps, rank.samples)
        rank.session.close()

    def _is_trained(self, end: int) -> bool:
        """Whether all ranks of the job have ended their steps. Waits a moment if not.

        Until then a rank of a worker that dies may come to this process.
        """
        self._pause_watchdog()
        for rank in self._hosted.values():
            if rank.unsent is not None and rank.evaluation is not None:
                rank.evaluation.done(_FOLLOW_INTERVAL_S)
                self._report()
                return False
        for rank in list(self._hosted.values()):
            while rank.ending is not None and not rank.ending.done(_FOLLOW_INTERVAL_S):
                self._follow()
                if self._next_rank(end) is not None:
                    return False
            # Another incarnation may have taken its place meanwhile.
            if self._hosted.get(rank.number) is rank:
                self._settle(rank)
        self._report(now=True)
        if end >= _ENDLESS:
            # A worker that has never had a rank stands by for others.
            if self._finished and not self._hosted:
                return True
        elif int(self.status().get("steps", 0)) >= end:
            return True
        if self._pause():
            return False
        state = self.client.describe()
        if state["state"] in ("COMPLETED", "FINISHING"):
            return True
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
        self._assigned = {}
        while self._hosted:
            self._give_up_others()
            for rank in self._hosted.values():
                rank.ending.done(_FOLLOW_INTERVAL_S)
        self.close()
        _log.info("this worker leaves the job, as an operator has asked")
        raise SystemExit(0)

    def _give_up_others(self) -> None:
        """Gives up ranks that are no longer assigned to this process, once their steps have ended.

        Does not wait for that: it may depend on a rank that this process hosts.
        """
        for number in sorted(set(self._hosted) - set(self._assigned)):
            rank = self._hosted[number]
            if rank is self._rank and self._computing:
                continue
            if rank.ending is not None and not rank.ending.done():
                continue
            self._settle(rank)
            self._close(number)
            ranks = (_abi.ctypes.c_uint32 * 1)(number)
            self._wait(self.client.call("pawl_give_up_ranks", ranks, 1, 0))

    def _progress(self) -> dict[str, Any]:
        for rank in self._hosted.values():
            self._done[rank.number] = (_ended_steps(rank), rank.samples)
        steps = [_ended_steps(rank) for rank in self._hosted.values()] or [
            ended for ended, _ in self._done.values()
        ]
        return {
            "steps_min": min(steps, default=0),
            "steps_max": max(steps, default=0),
            "steps_total": self._end if self._end < _ENDLESS else 0,
            "loss": self._loss,
            "ranks": [
                {"rank": number, "steps": steps_ended, "samples": samples}
                for number, (steps_ended, samples) in sorted(self._done.items())
            ],
        }

    def _report(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._reported_at < _PROGRESS_INTERVAL_S:
            return
        self._reported_at = time.monotonic()
        if self.client.describe()["leave_requested"]:
            self._leave()
        _abi.check(
            _abi.invoke(
                "pawl_report_progress",
                self.client.handle,
                json.dumps(self._progress()).encode(),
            )
        )


def _ended_steps(rank: Rank) -> int:
    """The rank's steps that the servers have acknowledged."""
    is_ending = rank.ending is not None and not rank.ending.done()
    return rank.step - (rank.unsent is not None or is_ending)


def _evaluation_of(text: str) -> dict[str, Any]:
    return json.loads(text).get("result", {})


def init(
    scheduler: Optional[str] = None, *, step_timeout: Optional[float] = None, **options: Any
) -> Job:
    """Joins the job as a worker; `pawl run` starts programs that call it.

    Args:
      scheduler: its host:port; default: the environment's PAWL_SCHEDULER.
      step_timeout: seconds that one iteration of the loop may take before its stacks are logged
        and `pawl run` restarts it; default: PAWL_STEP_TIMEOUT_S, or 600. Other ranks wait for two
        minutes more, also for this process to set up its model.
      **options: further arguments of pawl.Client.

    The environment's PAWL_WORKER_DIR, if set, is a folder of this worker's own. A process that is
    restarted with it gets its ranks back at once, not after its lease has expired.
    """
    global _current
    if _current is not None and _current.is_open:
        raise errors.FailedPreconditionError(
            "pawl.init() has been called; its job is pawl.job.current()"
        )
    options.setdefault("tune_process", True)
    if step_timeout is None:
        step_timeout = os.environ.get("PAWL_STEP_TIMEOUT_S", _STEP_TIMEOUT_S)  # type: ignore
    step_timeout = _seconds_of(step_timeout)
    options.setdefault("call_timeout", step_timeout + _RESTART_S)
    options.setdefault("description", "%s:%d" % (os.uname().nodename, os.getpid()))
    folder = WorkerFolder.from_environment()
    if folder is not None:
        options.setdefault("node", folder.previous_node())
    _current = job = Job(Client(scheduler, worker=True, **options), step_timeout)
    if folder is not None:
        description = job.client.describe()
        folder.write_node(description["node"], int(description["job_id"]), options["node"][2])
    failed = _watch_for_exceptions(job)
    _leave_on_sigterm()

    def at_exit() -> None:
        if not _abi.is_forked() and not failed and job.is_trained and not job._is_finished:
            try:
                job.finish()
            except errors.CancelledError:
                pass
            except errors.Error:
                traceback.print_exc()
                sys.stderr.flush()
                # An exception would not change the exit code here.
                os._exit(1)

    atexit.register(at_exit)
    return job


def _seconds_of(text: Any) -> float:
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise errors.InvalidArgumentError(
            "the step timeout is %r; it must be above 0 and below 1e6 seconds" % text
        )
    return seconds


def _leave_on_sigterm() -> None:
    """Ends the program as an exception does, so that its ranks go to others at once."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _watch_for_exceptions(job: Job) -> list[BaseException]:
    """A list that gets the exception that ends the program."""
    failed: list[BaseException] = []
    previous = sys.excepthook

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        failed.append(error)
        previous(kind, error, trace)
        job.on_exception(error)

    sys.excepthook = hook
    return failed
