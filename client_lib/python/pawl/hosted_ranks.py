"""The ranks that the scheduler assigns to a process."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Optional

from pawl import _abi, errors
from pawl.client import Client
from pawl.data import Source, Stream
from pawl.futures import Future
from pawl.rank import Rank
from pawl.session import Session


class HostedRanks:
    """Takes ranks over and gives them up, as the scheduler says.

    Args:
      client: the process's.
      wait: waits for a call and returns its result.
      settle: waits for the end of a rank's previous step.
      is_computing: whether the program computes a step of the rank; it is not given up meanwhile.
      on_close: called with the number of a rank that leaves the process.
    """

    def __init__(
        self,
        client: Client,
        *,
        wait: Callable[[Future[Any]], Any],
        settle: Callable[[Rank], None],
        is_computing: Callable[[Rank], bool],
        on_close: Callable[[int], None],
    ):
        self._client = client
        self._wait, self._settle = wait, settle
        self._is_computing, self._on_close = is_computing, on_close
        # By number.
        self.ranks: dict[int, Rank] = {}
        # {rank: incarnation} of the latest assignment, without the finished ones.
        self.assigned: dict[int, int] = {}
        self.finished: set[int] = set()
        # The number of ranks of the job; 0: not known yet.
        self.total = 0
        # {rank: (steps, samples)} of all that this process has hosted, for progress.
        self.done: dict[int, tuple[int, int]] = {}
        self._source: Optional[Source] = None
        self._begin_at = 0
        self._version = 0
        self._assignment: Optional[Future[Any]] = None

    def read(self, source: Source, begin_at: int) -> None:
        """The ranks' batches, from the job's step `begin_at` on. Call it before follow."""
        self._source, self._begin_at = source, begin_at

    def forget(self) -> None:
        """Drops the ranks and their data, after the client has left the job."""
        self.ranks, self._source = {}, None

    def follow(self) -> None:
        """Hosts the ranks that are assigned to this process, except finished ones."""
        self._ask_for_assignment()
        self.give_up_others()
        for number, incarnation in sorted(self.assigned.items()):
            hosted = self.ranks.get(number)
            if hosted is not None and hosted.incarnation != incarnation:
                if self._is_computing(hosted):
                    continue
                self.close(number)
                hosted = None
            if hosted is None:
                self._take_over(number, incarnation)

    def _ask_for_assignment(self) -> None:
        if self._assignment is None:
            self._assignment = self._client.call(
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
        self.total = int(answer.get("logical_workers_total", 0))
        self.assigned = {
            int(rank.get("rank", 0)): int(rank.get("incarnation", 0))
            for rank in answer.get("logical_workers", [])
            if int(rank.get("rank", 0)) not in self.finished
        }

    def _take_over(self, number: int, incarnation: int) -> None:
        self._wait(self._client.call("pawl_take_over", number, 0))
        handle = _abi.invoke("pawl_rank", self._client.handle, number)
        session = Session(self._client, handle, number)
        step = session.step
        assert self._source is not None
        first = max(0, step - self._begin_at)
        batches = self._source.batches(number, self.total, first)
        rank = Rank(number, incarnation, session, batches, step)
        # Its predecessors' too: each sample counts once.
        if isinstance(self._source, Stream):
            rank.samples = first * self._source.batch_samples
            rank.uncounted_batches = first if rank.samples == 0 else 0
        else:
            rank.samples = sum(
                self._source.share(done, number, self.total)[0] for done in range(first)
            )
        self.ranks[number] = rank

    def next(self, end: int) -> Optional[Rank]:
        """The rank that is behind the others; None if all have ended their steps."""
        waiting = [
            rank
            for rank in self.ranks.values()
            if rank.number in self.assigned
            and rank.unsent is None
            and rank.step < min(end, rank.step_count)
        ]
        return min(waiting, key=lambda rank: (rank.step, rank.number)) if waiting else None

    def close(self, number: int) -> None:
        """Stops hosting the rank."""
        rank = self.ranks.pop(number)
        self.done[number] = (rank.ended_steps(), rank.samples)
        if rank.has_batch and isinstance(self._source, Stream):
            self._source.give_back(rank.batch)
        self._on_close(number)
        rank.session.close()

    def finish(self, number: int) -> None:
        """The rank has done all its steps: it is not taken over again."""
        self.finished.add(number)
        self.assigned.pop(number, None)

    def give_up_others(self) -> None:
        """Gives up ranks that are no longer assigned to this process, once their steps have ended.

        Does not wait for that: it may depend on a rank that this process hosts.
        """
        for number in sorted(set(self.ranks) - set(self.assigned)):
            rank = self.ranks[number]
            if self._is_computing(rank):
                continue
            if rank.ending is not None and not rank.ending.done():
                continue
            self._settle(rank)
            self.close(number)
            ranks = (ctypes.c_uint32 * 1)(number)
            self._wait(self._client.call("pawl_give_up_ranks", ranks, 1, 0))

    def progress(self) -> dict[str, Any]:
        """The steps and samples of all ranks that this process has hosted (pawl.WorkerProgress)."""
        for rank in self.ranks.values():
            self.done[rank.number] = (rank.ended_steps(), rank.samples)
        steps = [rank.ended_steps() for rank in self.ranks.values()] or [
            ended for ended, _ in self.done.values()
        ]
        return {
            "steps_min": min(steps, default=0),
            "steps_max": max(steps, default=0),
            "ranks": [
                {"rank": number, "steps": steps_ended, "samples": samples}
                for number, (steps_ended, samples) in sorted(self.done.items())
            ],
        }
