"""Pushes and pulls of a client or of a rank."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Iterable, Optional

from pawl import _abi, errors
from pawl.futures import Future, milliseconds, start
from pawl.items import CallPart, array_of
from pawl.table import Table

if TYPE_CHECKING:
    from pawl.client import Client


class Session:
    """A sender of pushes and pulls: the client's own (without steps), or a rank's."""

    def __init__(self, client: "Client", handle: ctypes.c_void_p, rank: Optional[int] = None):
        self._client = client
        self._handle: Optional[ctypes.c_void_p] = handle
        self.rank = rank

    @property
    def handle(self) -> ctypes.c_void_p:
        """pawl_session*. Raises CancelledError if the client or the rank is closed."""
        # The library has freed the session then.
        if self._handle is None or not self._client.handle:
            raise errors.CancelledError("rank %s is closed" % self.rank)
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether the rank has not been closed."""
        return self._handle is not None

    def close(self) -> None:
        """Stops hosting the rank. Ranks only."""
        handle, self._handle = self._handle, None
        if handle is not None and self.rank is not None:
            _abi.invoke("pawl_close_rank", self._client.handle, self.rank)

    @property
    def step(self) -> int:
        """The step to which calls made now belong. Ranks only: FailedPreconditionError."""
        if self.rank is None:
            raise errors.FailedPreconditionError("the client's own session has no steps; ranks do")
        return _abi.invoke("pawl_step", self.handle)

    def pull(
        self,
        items: Iterable[CallPart],
        *,
        step: Optional[int] = None,
        timeout: Optional[float] = None,
        result: Any = None,
    ) -> Future[Any]:
        """Reads all items in one call. `step`: the later step that a rank's pull is for."""
        items = list(items)
        array = array_of(items)
        return start(
            "pawl_pull",
            self.handle,
            array,
            len(array),
            -1 if step is None else step,
            milliseconds(timeout),
            kept=items,
            convert=lambda _: result,
        )

    def push(self, items: Iterable[CallPart], *, timeout: Optional[float] = None) -> Future[None]:
        """Pushes all items in one call."""
        items = list(items)
        array = array_of(items)
        return start(
            "pawl_push",
            self.handle,
            array,
            len(array),
            milliseconds(timeout),
            kept=items,
        )

    def assign(self, items: Iterable[CallPart], *, timeout: Optional[float] = None) -> Future[None]:
        """Sets all items in one call. A rank may assign only in the job's first step."""
        items = list(items)
        array = array_of(items)
        return start(
            "pawl_assign",
            self.handle,
            array,
            len(array),
            milliseconds(timeout),
            kept=items,
        )

    def set_learning_rates(
        self, rates: dict[Table, float], *, timeout: Optional[float] = None
    ) -> Future[None]:
        """Sets learning rates from this step on, as part of the step. Rank 0 only."""
        return start(
            "pawl_set_learning_rates",
            self.handle,
            (ctypes.c_uint32 * len(rates))(*(table.id for table in rates)),
            (ctypes.c_float * len(rates))(*rates.values()),
            len(rates),
            milliseconds(timeout),
        )

    def end_step(self, *, timeout: Optional[float] = None) -> Future[None]:
        """Ends the step, once all its pushes are acknowledged. Ranks only."""
        return start("pawl_end_step", self.handle, milliseconds(timeout))
