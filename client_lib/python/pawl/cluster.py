"""A cluster on this machine, for notebooks, tests and first steps."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from typing import Any, Mapping, Optional

from pawl import _abi, errors
from pawl.client import Client, Status

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 20.0
_POLL_S = 0.02


class LocalCluster:
    """A scheduler and servers as processes of this machine, at free ports of 127.0.0.1.

    They end with the `with` block, with close(), or with this process, however that ends. A process
    that dies is restarted with its data.

    Args:
      servers: how many.
      job: fields of the job (proto/job.proto) as "path": value, such as
        {"consistency.mode": "ASYNC", "replicas": 2}.
      folder: keeps logs and data there; default: a temporary folder, removed at the end. What an
        earlier cluster has left there, its data too, is removed first.
      tls: use mutual TLS, with certificates made for this cluster in `folder`/out/tls.
    """

    def __init__(
        self,
        servers: int = 1,
        *,
        job: Optional[Mapping[str, Any]] = None,
        folder: Optional[str] = None,
        tls: bool = False,
    ):
        self._temporary = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="pawl-")
        os.makedirs(self.folder, exist_ok=True)
        job_file = pathlib.Path(self.folder, "local.pbtxt")
        job_file.write_text('name: "local"\n', encoding="utf-8")
        command = [
            _abi.program("pawlctl"),
            "run",
            "--job=%s" % job_file,
            "--servers=%d" % servers,
            "--out=%s" % os.path.join(self.folder, "out"),
            "--until_stdin_ends",
        ]
        self.tls_dir = os.path.join(self.folder, "out", "tls") if tls else None
        command += ["--tls"] if tls else []
        command += ["--set=%s=%s" % setting for setting in (job or {}).items()]
        self._output = pathlib.Path(self.folder, "pawlctl.log")
        self._address_file = pathlib.Path(self.folder, "out", "scheduler.addr")
        # An earlier cluster's file stays until pawlctl has started and removes it.
        earlier = self._read_address()[0]
        with open(self._output, "wb") as output:
            # A group of its own: Ctrl-C reaches only this process, which closes stdin at its end.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # A forked child would keep the pipe open.
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        os.register_at_fork(after_in_child=_closer(self._process.stdin, descriptor))
        self._finalizer = weakref.finalize(
            self, _end, self._process, self.folder if self._temporary else None
        )
        try:
            self.scheduler = self._wait_for_address(earlier)
        except BaseException:
            self.close()
            raise

    def client(self, **options: Any) -> Client:
        """A client of the cluster. Arguments as for pawl.Client.

        PAWL_TLS_DIR and PAWL_TOKEN do not count: they are of another cluster.
        """
        if self.tls_dir is None or options.get("token"):
            options.setdefault("tls_dir", "")
        else:
            options.setdefault("tls_dir", os.path.join(self.tls_dir, "client"))
        return Client(self.scheduler, **options)

    def status(self) -> Status:
        """Returns the status that `pawlctl status` shows."""
        with self.client() as client:
            return client.status()

    def close(self) -> None:
        """Ends all processes; removes a temporary folder."""
        self._finalizer()

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _read_address(self) -> tuple[Optional[tuple[int, int]], str]:
        """What tells the address file from an earlier one, and its text; (None, ""): no file."""
        try:
            with open(self._address_file, encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                return (status.st_ino, status.st_mtime_ns), file.read().strip()
        except FileNotFoundError:
            return None, ""

    def _wait_for_address(self, earlier: Optional[tuple[int, int]]) -> str:
        """The text of an address file that is not the earlier one."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise errors.FailedPreconditionError(
                    "the cluster cannot start:\n" + self._output.read_text("utf-8", "replace")
                )
            file, address = self._read_address()
            if address and file != earlier:
                return address
            time.sleep(_POLL_S)
        raise errors.DeadlineExceededError(
            "the cluster has not started within %g s:\n%s"
            % (_START_TIMEOUT_S, self._output.read_text("utf-8", "replace"))
        )

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


def _closer(pipe: Any, descriptor: int) -> Any:
    reference = weakref.ref(pipe)

    def close() -> None:
        pipe = reference()
        # Else the number is another file's by now.
        if pipe is not None and not pipe.closed:
            try:
                os.close(descriptor)
            except OSError:
                pass

    return close


def _end(process: "subprocess.Popen[bytes]", temporary: Optional[str]) -> None:
    if _abi.is_forked():
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # pawlctl's children die with it.
        process.send_signal(signal.SIGKILL)
        process.wait()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)

