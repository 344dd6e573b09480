"""Writes the stacks of a program whose step hangs."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from typing import Optional

# The timer is not set again within this time, because setting it starts a thread.
_INTERVAL_S = 1.0


class Watchdog:
    """Writes the stacks of all threads to stderr if the program's step takes too long.

    Under `pawl run` the process then ends, so that it is restarted: other ranks wait for it. Use it
    from one thread.
    """

    def __init__(self, timeout_s: float):
        self._timeout_s = timeout_s
        self._interval_s = min(_INTERVAL_S, timeout_s / 10)
        # When the timer was set; None: it is not.
        self._set_at: Optional[float] = None

    def watch(self) -> None:
        """A step begins. The timer may be a second, or a tenth of the timeout, older."""
        # Not sys.stderr: a notebook replaces it by what is no file.
        if sys.__stderr__ is None:
            return
        now = time.monotonic()
        if self._set_at is not None and now - self._set_at < self._interval_s:
            return
        faulthandler.dump_traceback_later(
            self._timeout_s,
            exit="PAWL_WORKER_DIR" in os.environ,
            file=sys.__stderr__,
        )
        self._set_at = now

    def pause(self) -> None:
        """Stops the timer while the program waits for other ranks."""
        if self._set_at is not None:
            faulthandler.cancel_dump_traceback_later()
            self._set_at = None
