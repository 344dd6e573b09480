"""Ranks that a process hosts, and what takes part in their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional, Protocol

from pawl.data import ENDLESS
from pawl.futures import Future
from pawl.session import Session

if TYPE_CHECKING:
    from pawl.job import Job


class StepPart(Protocol):
    """Something that takes part in every step, such as pawl.torch's optimizer."""

    # Steps of the job that it needs for itself before the first batch.
    steps_before_data: int

    def start(self, job: "Job", rank: "Rank") -> Optional[Future[Any]]:
        """Fetches what the rank's step needs; a call that ends when it has arrived, or None.

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
        # Batches of a stream that predecessors have trained on, until a batch tells their size.
        self.uncounted_batches = 0
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
        # Rank 0's: the learning rates of its latest step (None: not known), and whether `state` has
        # others.
        self.rates: Optional[list[float]] = None
        self.rates_changed = False
        # The items of a step that waits for its evaluation; None: no step waits.
        self.unsent: Optional[list[Any]] = None
        # Known once a stream has ended.
        self.step_count = ENDLESS

    def count_batch(self, samples: int) -> None:
        """Adds the samples of a batch. Those of a stream's earlier ones are taken to be as many."""
        self.samples += samples * (1 + self.uncounted_batches)
        self.uncounted_batches = 0

    def set_rates(self, rates: list[float]) -> None:
        """The step's learning rates, which become part of the rank's state."""
        if rates != self.rates:
            self.rates, self.rates_changed = list(map(float, rates)), True

    def ended_steps(self) -> int:
        """How many steps the servers have acknowledged."""
        is_ending = self.ending is not None and not self.ending.done()
        return self.step - (self.unsent is not None or is_ending)
