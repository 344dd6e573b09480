"""The results of calls that are still running."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
import threading
import time
from typing import Any, Callable, Generic, Optional, TypeVar

from pawl import _abi, errors

T = TypeVar("T")

# A wait returns to the interpreter this often, so that Ctrl-C ends it.
_SLICE_MS = 100

def milliseconds(seconds: Optional[float]) -> int:
    """A timeout of the C interface; 0: none given."""
    return 0 if seconds is None else max(1, int(seconds * 1000))


# Calls whose futures are gone, with the arrays that the library still uses. Appending needs no
# lock: a collection of garbage may delete a future in any line of this thread.
_abandoned: collections.deque[tuple[ctypes.c_void_p, Any]] = collections.deque()
_release_lock = threading.Lock()


def _release_ended() -> None:
    """Frees abandoned calls that have ended. An interrupt loses none that runs."""
    if not _abandoned or not _release_lock.acquire(blocking=False):
        return
    try:
        for _ in range(len(_abandoned)):
            if _abi.invoke("pawl_wait", _abandoned[0][0], 0) == _abi.PENDING:
                _abandoned.rotate(-1)
            else:
                _abi.invoke("pawl_release", _abandoned.popleft()[0])
    finally:
        _release_lock.release()


class Future(Generic[T]):
    """A call that has started. Use `wait()`, `done()`, or `await` in a coroutine.

    It keeps the arrays of the call alive; they must not be changed until the call has ended. A
    future may be dropped: its call continues. Thread-safe.
    """

    def __init__(
        self,
        call: ctypes.c_void_p,
        kept: Any = None,
        convert: Optional[Callable[[str], T]] = None,
    ):
        self._call: Optional[ctypes.c_void_p] = call
        self._kept = kept
        self._convert = convert
        self._lock = threading.Lock()
        self._value: Optional[T] = None
        self._error: Optional[errors.Error] = None
        self._ended = False

    def done(self, timeout: float = 0.0) -> bool:
        """Returns whether the call has ended, successfully or not. Waits at most `timeout` s."""
        return self._wait_until(time.monotonic() + timeout)

    def wait(self, timeout: Optional[float] = None) -> T:
        """Waits and returns the call's result.

        Args:
          timeout: in seconds; None waits for the call's own end, which its deadline bounds.

        Raises:
          TimeoutError: the call has not ended in time. It continues.
          pawl.Error: the call has failed.
        """
        if not self._wait_until(None if timeout is None else time.monotonic() + timeout):
            raise TimeoutError("the call has not ended within %s s" % timeout)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _wait_until(self, deadline: Optional[float]) -> bool:
        while True:
            left_ms = _SLICE_MS
            if deadline is not None:
                # Bounded before it is rounded, since it may be infinite.
                left_ms = int(min(left_ms, max(0.0, (deadline - time.monotonic()) * 1000)))
            if self._poll(left_ms):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def __await__(self):
        loop = asyncio.get_running_loop()
        while not self.done():
            descriptor = self.descriptor()
            ended = loop.create_future()

            def end() -> None:
                loop.remove_reader(descriptor)
                if not ended.done():
                    ended.set_result(None)

            loop.add_reader(descriptor, end)
            try:
                yield from ended
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self.wait()

    def descriptor(self) -> int:
        """A new descriptor, which is readable once the call has ended. The caller closes it."""
        # Several coroutines may await this: a loop knows one reader of each descriptor.
        return os.dup(_abi.invoke("pawl_call_fd", self._call))

    def _poll(self, timeout_ms: int) -> bool:
        if self._ended:
            return True
        # Outside of the lock: other threads may ask meanwhile. The call object exists until the
        # future is deleted.
        code = _abi.invoke("pawl_wait", self._call, timeout_ms)
        if code == _abi.PENDING:
            return False
        with self._lock:
            if self._ended:
                return True
            try:
                _abi.check(code)
                text = _abi.invoke("pawl_result", self._call).decode()
                self._value = self._convert(text) if self._convert else None  # type: ignore
            except errors.Error as error:
                self._error = error
            self._kept = None
            self._ended = True
        return True

    def __del__(self) -> None:
        call, self._call = getattr(self, "_call", None), None
        # Null: the call has not started.
        if not call or _abi.is_forked():
            return
        if self._ended or _abi.invoke("pawl_wait", call, 0) != _abi.PENDING:
            _abi.invoke("pawl_release", call)
            return
        _abandoned.append((call, self._kept))


def start(
    name: str,
    *arguments: Any,
    kept: Any = None,
    convert: Optional[Callable[[str], T]] = None,
) -> Future[T]:
    """Starts the call of a function of the C interface whose last parameter is `call`."""
    _release_ended()
    call = ctypes.c_void_p()
    # Before the call starts, so that it keeps the arrays whatever interrupts this function.
    future = Future(call, kept, convert)
    _abi.check(_abi.invoke(name, *arguments, ctypes.byref(call)))
    return future
