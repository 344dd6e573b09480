"""A process's membership in a job."""

from __future__ import annotations

import ctypes
import html
import json
import os
import threading
import weakref
from typing import Any, Optional

from pawl import _abi, errors, specs
from pawl.futures import Future, milliseconds, start
from pawl.session import Session
from pawl.table import Table


class Client:
    """One process's membership in a job. Use it as a context manager, or call close().

    Args:
      scheduler: its host:port; default: the environment's PAWL_SCHEDULER.
      tls_dir: the folder with this process's certificate; default: PAWL_TLS_DIR. "": none, and
        PAWL_TOKEN does not count either.
      insecure: without certificates, allow a scheduler on another machine.
      token: instead of a certificate, for a client that is no worker: what `pawlctl token` prints;
        default: PAWL_TOKEN, unless tls_dir has a certificate.
      token_file: a file with the token, read again when it changes.
      ca: with a token: the file of the authorities of the daemons' certificates; default: ca.pem in
        tls_dir.
      worker: whether this process hosts ranks (pawl.init does this).
      node: (node, job_id, start count) of this process's previous incarnation, which ends at once.
      description: shown in logs and by `pawlctl nodes`.
      connect_timeout: seconds to wait for the scheduler and the job's servers.
      call_timeout: seconds, of calls that give none.
      tune_process: let the library set malloc for large calls; changes the whole process.

    Thread-safe, but close it only when no other thread uses it. Not usable after fork().
    """

    def __init__(
        self,
        scheduler: Optional[str] = None,
        *,
        tls_dir: Optional[str] = None,
        insecure: bool = False,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca: Optional[str] = None,
        worker: bool = False,
        node: tuple[str, int, int] = ("", 0, 0),
        description: Optional[str] = None,
        connect_timeout: float = 60.0,
        call_timeout: float = 120.0,
        tune_process: bool = False,
    ):
        self._handle: Optional[ctypes.c_void_p] = None
        self._describing = threading.Lock()
        scheduler = scheduler or os.environ.get("PAWL_SCHEDULER")
        if not scheduler:
            raise errors.InvalidArgumentError(
                "no scheduler: pass its host:port or set PAWL_SCHEDULER; pawl.LocalCluster starts "
                "one, and so does `pawl run`"
            )
        options = _abi.Options(
            ctypes.sizeof(_abi.Options),
            scheduler.encode(),
            None if tls_dir is None else tls_dir.encode(),
            insecure,
            worker,
            worker,
            node[0].encode() or None,
            node[1],
            node[2],
            description.encode() if description else None,
            milliseconds(connect_timeout),
            milliseconds(call_timeout),
            tune_process,
            token.encode() if token else None,
            token_file.encode() if token_file else None,
            ca.encode() if ca else None,
        )
        handle = ctypes.c_void_p()
        connected: Future[None] = start("pawl_connect", ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle
        self._finalizer = weakref.finalize(self, _disconnect, handle)
        self.scheduler = scheduler
        try:
            connected.wait()
        except BaseException:
            self.close()
            raise
        self.free_running = Session(self, _abi.invoke("pawl_free_running", handle))

    @property
    def handle(self) -> ctypes.c_void_p:
        """pawl_client*. Raises CancelledError if the client is closed."""
        if self._handle is None:
            raise errors.CancelledError("the client is closed")
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether close() has not been called."""
        return self._handle is not None

    def close(self) -> None:
        """Ends pending calls with CancelledError and leaves the job."""
        self._handle = None
        self._finalizer()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def describe(self) -> dict[str, Any]:
        """This membership: node, state, the job, counters of calls."""
        text = ctypes.c_char_p()
        # The next call frees the text.
        with self._describing:
            _abi.check(_abi.invoke("pawl_describe", self.handle, ctypes.byref(text)))
            copy = text.value or b"{}"
        return json.loads(copy)

    @property
    def job(self) -> dict[str, Any]:
        """The job file's content, as a dictionary (proto/job.proto)."""
        return self.describe()["job"]

    def status(self, *, timeout: Optional[float] = None) -> "Status":
        """Returns the status that `pawlctl status` shows. It displays itself in a notebook."""
        return self.call("pawl_status", milliseconds(timeout), convert=_status).wait()

    def table(
        self,
        name: str,
        dim: int,
        *,
        optimizer: specs.Optimizer,
        init: Optional[specs.Initializer] = None,
    ) -> Table:
        """Creates a table of rows of `dim` numbers, or opens an equal one.

        Raises AlreadyExistsError if the name has another width, optimizer or initial value.
        """
        return self.create(
            specs.sparse_spec(name, dim, optimizer, init or specs.Constant(0.0))
        ).wait()

    def dense(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        optimizer: specs.Optimizer,
        init: Optional[specs.Initializer] = None,
    ) -> Table:
        """Creates a table that is one tensor, or opens an equal one."""
        return self.create(
            specs.dense_spec(name, shape, optimizer, init or specs.Constant(0.0))
        ).wait()

    def create(self, spec: dict[str, Any]) -> Future[Table]:
        """Creates a table by its spec (pawl.TableSpec as a dictionary), without waiting."""
        return self.call(
            "pawl_create_table", json.dumps(spec).encode(), 0, convert=self._to_table
        )

    def open(self, name: str) -> Table:
        """Opens a table that exists. Raises NotFoundError if there is none of this name."""
        return self.call("pawl_open_table", name.encode(), 0, convert=self._to_table).wait()

    def tables(self) -> list[Table]:
        """All tables of the job."""
        listed = self.call("pawl_list_tables", 0, convert=json.loads).wait()
        return [Table(self, spec) for spec in listed.get("tables", [])]

    def barrier(
        self, name: str, parties: int, party: int, *, timeout: Optional[float] = None
    ) -> None:
        """Waits until all `parties` have arrived. Each name is used once."""
        self.call("pawl_barrier", name.encode(), parties, party, milliseconds(timeout)).wait()

    def call(self, name: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Starts a call of the C interface that takes this client first."""
        return start(name, self.handle, *arguments, **options)

    def _to_table(self, text: str) -> Table:
        return Table(self, json.loads(text))


def _status(text: str) -> "Status":
    return Status(json.loads(text))


def _disconnect(handle: ctypes.c_void_p) -> None:
    if not _abi.is_forked():
        _abi.invoke("pawl_disconnect", handle)


class Status(dict):
    """The state of a job (pawl.GetStatusResponse as a dictionary)."""

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("job", self.get("job", {}).get("name", "")),
            ("state", self.get("state", "")),
            ("steps", "%s" % self.get("steps", 0)),
        ]
        if self.get("failure"):
            rows.append(("failure", self["failure"]))
        for metric in self.get("metrics", []):
            text = "%g at step %s" % (metric.get("value", 0), metric.get("step", 0))
            rows.append((metric["name"], text))
        for node in self.get("nodes", []):
            ranks = node.get("logical_workers", [])
            rows.append(
                (
                    node.get("node", ""),
                    ("gone" if node.get("gone") else node.get("address") or "present")
                    + (", ranks %s" % ", ".join(map(str, ranks)) if ranks else ""),
                )
            )
        return rows

    def __str__(self) -> str:
        return "\n".join("%-12s  %s" % row for row in self._rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr><th>%s</th><td>%s</td></tr>" % (html.escape(name), html.escape(value))
            for name, value in self._rows()
        )
        return "<table>%s</table>" % cells
