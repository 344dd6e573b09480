"""Training of built-in models from Python: what `pawlctl run` does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from typing import Any, Mapping, Optional, Union

from pawl import _abi, errors

_END_TIMEOUT_S = 60.0


class Result(dict):
    """The content of a run's metrics.json: auc and others under "eval", digest, samples, steps."""

    def __init__(self, metrics: Mapping[str, Any], out: str):
        super().__init__(metrics)
        # The folder with metrics.json, logs and the learning curve.
        self.out = out

    def _repr_html_(self) -> str:
        rows = {
            "job": self.get("job"),
            "state": self.get("state"),
            "steps": self.get("steps"),
            "samples": self.get("samples"),
            **{
                name: value
                for name, value in (self.get("eval") or {}).items()
                if name
                in ("auc", "logloss", "accuracy", "rmse", "gauc", "ndcg", "calibration", "mae")
            },
            "samples/s": "%.0f" % self.get("samples_per_s", 0),
            "digest": self.get("digest"),
        }
        cells = "".join("<tr><th>%s</th><td>%s</td></tr>" % row for row in rows.items())
        return "<table>%s</table>" % cells


def train(
    job: Union[str, "os.PathLike[str]", Mapping[str, Any]],
    *,
    servers: int = 1,
    workers: int = 1,
    settings: Optional[Mapping[str, Any]] = None,
    out: Optional[str] = None,
    quiet: bool = False,
) -> Result:
    """Trains a built-in model on this machine, and waits for its end.

    Args:
      job: the path of a job file, or a job as nested dictionaries with the field names of
        proto/job.proto, such as {"name": "ctr", "model": {"deepfm": {"dim": 16}}, ...}. In
        dictionaries, relative paths are relative to the current folder.
      servers, workers: how many processes.
      settings: changes of fields: {"epochs": 1, "consistency.mode": "ASYNC"}.
      out: the folder for the result, logs and the learning curve; default: out/NAME.
      quiet: do not print the progress.

    Raises FailedPreconditionError, with the last lines of the output, if the job does not complete.
    Ctrl-C ends the job and all its processes.
    """
    with tempfile.TemporaryDirectory(prefix="pawl-job-") as folder:
        if isinstance(job, Mapping):
            path = os.path.join(folder, "job.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(_absolute(job), file)
            name = str(job.get("name", "job"))
        else:
            path = os.fspath(job)
            name = ""
        command = [_abi.program("pawlctl"), "run", "--job=" + path]
        command += ["--servers=%d" % servers, "--workers=%d" % workers, "--until_stdin_ends"]
        command += ["--set=%s=%s" % setting for setting in (settings or {}).items()]
        if out is None and name:
            out = os.path.join("out", name)
        command += ["--out=" + out] if out is not None else []
        lines: list[str] = []
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Ctrl-C reaches only this process.
            start_new_session=True,
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    lines = lines[-20:] + [line]
                    if not quiet:
                        print(line, end="", flush=True)
                code = process.wait()
            except BaseException:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_END_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                raise
    if code != 0:
        raise errors.FailedPreconditionError("the job did not complete:\n" + "".join(lines))
    metrics = next(
        line.split(" in ", 1)[1].strip() for line in reversed(lines) if "metrics in " in line
    )
    with open(metrics, encoding="utf-8") as file:
        return Result(json.load(file), os.path.dirname(metrics))


def _absolute(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with its paths relative to the current folder, not to the temporary one."""
    made = dict(job)
    for part, names in (("data", ("train", "eval")), ("checkpoint", ("dir",))):
        if isinstance(made.get(part), Mapping):
            made[part] = {
                name: _absolute_paths(value) if name in names and value else value
                for name, value in made[part].items()
            }
    return made


def _absolute_paths(value: Any) -> Any:
    """A path, or a list of paths."""
    if isinstance(value, (list, tuple)):
        return [_absolute_paths(path) for path in value]
    return os.path.abspath(value)
