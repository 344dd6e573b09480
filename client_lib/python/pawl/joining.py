"""How a training program joins its job, and leaves it at its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import Any, Optional

from pawl import _abi, errors, job as job_module
from pawl.client import Client
from pawl.cluster import LocalCluster
from pawl.job import RESTART_S, Job
from pawl.job_settings import JobSettings
from pawl.worker_folder import WorkerFolder

# How long a rank's step may take, unless pawl.init or PAWL_STEP_TIMEOUT_S says otherwise.
_STEP_TIMEOUT_S = 600.0


def init(
    scheduler: Optional[str] = None,
    *,
    job: Optional[JobSettings] = None,
    step_timeout: Optional[float] = None,
    **options: Any,
) -> Job:
    """Joins the job as a worker; `pawl run` starts programs that call it.

    Args:
      scheduler: its host:port; default: the environment's PAWL_SCHEDULER.
      job: settings that the job must have. `pawl run` starts the job with them. Without a
        scheduler, this process starts a server of its own, and is the only worker; both end with
        it.
      step_timeout: seconds that one iteration of the loop may take before its stacks are logged
        and `pawl run` restarts it; default: PAWL_STEP_TIMEOUT_S, or 600. A rank waits for the
        others for as long as the iterations of all ranks and two minutes, because one process may
        host all ranks.
      **options: further arguments of pawl.Client.

    The environment's PAWL_WORKER_DIR, if set, is a folder of this worker's own. A process that is
    restarted with it gets its ranks back at once, not after its lease has expired.
    """
    if job_module.has_open():
        raise errors.FailedPreconditionError(
            "pawl.init() has been called; its job is pawl.job.current()"
        )
    if job is not None:
        job.write_if_asked()
    options.setdefault("tune_process", True)
    if step_timeout is None:
        step_timeout = os.environ.get("PAWL_STEP_TIMEOUT_S", _STEP_TIMEOUT_S)  # type: ignore
    step_timeout = _seconds_of(step_timeout)
    options.setdefault("call_timeout", step_timeout + RESTART_S)
    options.setdefault("description", "%s:%d" % (os.uname().nodename, os.getpid()))
    folder = WorkerFolder.from_environment()
    if folder is not None:
        options.setdefault("node", folder.previous_node())
    cluster = None
    if job is not None and not (scheduler or os.environ.get("PAWL_SCHEDULER")):
        cluster = LocalCluster(job=job.by_path())
        client = cluster.client(worker=True, **options)
    else:
        client = Client(scheduler, worker=True, **options)
    joined = Job(client, step_timeout, cluster)
    try:
        if job is not None:
            job.check(joined.client.job)
        if folder is not None:
            description = joined.client.describe()
            folder.write_node(description["node"], int(description["job_id"]), options["node"][2])
        joined.on_close = _Exit(joined).forget
    except BaseException:
        joined.close()
        raise
    job_module.set_current(joined)
    return joined


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


class _Exit:
    """What the end of the program does to its job, until the job is closed."""

    def __init__(self, job: Job):
        self._job = job
        # Whether the program ends by an exception or SIGTERM.
        self._is_failed = False
        self._previous = sys.excepthook
        sys.excepthook = self._on_exception
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
        atexit.register(self._on_exit)

    def forget(self) -> None:
        """The end of the program does nothing any more."""
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_exception(self, kind: Any, error: BaseException, trace: Any) -> None:
        self._is_failed = True
        self._previous(kind, error, trace)
        self._job.on_exception(error)

    def _on_sigterm(self, *_: Any) -> None:
        """Ends the program as an exception does, so that its ranks go to others at once."""
        # SystemExit does not reach sys.excepthook.
        self._is_failed = True
        sys.exit(128 + signal.SIGTERM)

    def _on_exit(self) -> None:
        job = self._job
        if _abi.is_forked() or self._is_failed or not job.is_trained or job.is_finished:
            return
        try:
            job.finish()
        except errors.CancelledError:
            pass
        except errors.Error:
            traceback.print_exc()
            for stream in (sys.stdout, sys.stderr):
                # It may be closed, absent, or the program's own.
                with contextlib.suppress(Exception):
                    stream.flush()
            # An exception would not change the exit code here.
            os._exit(1)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
