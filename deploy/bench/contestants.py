"""The contestants of deploy/bench/run: how each is started, and how its result is read."""

import calendar
import dataclasses
import glob
import json
import os
import re
import time
from typing import Callable

import peers_environment
import processes

HERE = os.path.dirname(os.path.realpath(__file__))
# Far longer than any run takes. Only a hang reaches it.
RUN_TIMEOUT_S = 3600.0
# Adagrad with dense gradients touches every row in every step.
MAX_DENSE_ROWS = 1_000_000
DENSE_LEARNING_RATE = 0.001
# The Python package in the tree, and its library in Bazel's output.
PACKAGE = "client_lib/python"
LIBRARY = "client_lib/c/libpawl.so"
# OpenMP's threads spin while they wait for each other, unless told otherwise. When other processes
# need the processors, too, that makes a step of PyTorch ten times as long.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set in a folder of bench_data, and how it is trained."""

    name: str
    folder: str
    job_file: str
    # Text files for Pawl.
    train_file: str
    test_file: str
    fields: int
    rows: int
    train_samples: int
    test_samples: int
    batch_size: int
    epochs: int
    learning_rate: float


@dataclasses.dataclass(frozen=True)
class Result:
    """What one run reached."""

    samples: int
    seconds: float
    processor_s: float
    auc: float
    logloss: float
    digest: str = ""

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second."""
        return self.samples / self.seconds

    @property
    def processor_s_per_million(self) -> float:
        """Processor-seconds of all processes per million samples."""
        return self.processor_s / self.samples * 1e6


@dataclasses.dataclass(frozen=True)
class Contestant:
    """`run` trains once, with logs in a folder; it raises processes.ProgramFailed."""

    name: str
    title: str
    run: Callable[[DataSet, str], Result]
    needs: tuple[peers_environment.Step, ...] = ()
    max_rows: int | None = None


def pawl(bin_folder: str) -> Contestant:
    """Pawl with the processes of deploy/quickstart, but 2 logical workers."""
    return Contestant("pawl", "Pawl, 2 servers, 2 workers, SYNC, LOG", _Pawl(bin_folder).run)


def pawl_tls(bin_folder: str) -> Contestant:
    """The same with mutual TLS on all connections."""
    return Contestant(
        "pawl-tls", "Pawl, the same with mutual TLS", _Pawl(bin_folder, ["--tls"]).run
    )


def pawl_torch(bin_folder: str, python: str) -> Contestant:
    """The same model in PyTorch with its tables on Pawl's servers (client_lib/python)."""
    return Contestant(
        "pawl-torch",
        "pawl.torch, 2 servers, 2 workers, SYNC, LOG",
        _PawlTorch(bin_folder, python).run,
        peers_environment.TORCH_STEPS,
    )


def limit(bin_folder: str, threads: int) -> Contestant:
    """tests/perf/limit_deepfm.cc."""
    command = [os.path.join(bin_folder, "tests/perf/limit_deepfm"), "--threads=%d" % threads]
    return Contestant("limit", "limit program, one process, no servers or log", _reporting(command))


def peers(python: str, threads: int) -> dict[str, list[Contestant]]:
    """The contestants of each name in --peers."""

    def trained_by(script: str, variant: str) -> Callable[[DataSet, str], Result]:
        return _reporting(
            [
                python,
                os.path.join(HERE, script),
                "--variant=" + variant,
                "--threads=%d" % threads,
            ]
        )

    torch, torchrec = peers_environment.TORCH_STEPS, peers_environment.TORCHREC_STEPS
    return {
        "torch": [
            Contestant(
                "torch-dense",
                "PyTorch, one process, dense gradients",
                trained_by("peer_torch.py", "dense"),
                torch,
                MAX_DENSE_ROWS,
            ),
            Contestant(
                "torch-sparse",
                "PyTorch, one process, sparse gradients",
                trained_by("peer_torch.py", "sparse"),
                torch,
            ),
        ],
        "ddp": [
            Contestant(
                "ddp",
                "PyTorch DDP, 2 processes, Gloo, sparse gradients",
                trained_by("peer_torch.py", "ddp"),
                torch,
            )
        ],
        "torchrec": [
            Contestant(
                "torchrec",
                "TorchRec, one process, fused Adagrad",
                trained_by("peer_torchrec.py", "torchrec"),
                torchrec,
            )
        ],
        "torchrec2": [
            Contestant(
                "torchrec2",
                "TorchRec, 2 processes, Gloo, fused Adagrad",
                trained_by("peer_torchrec.py", "torchrec2"),
                torchrec,
            )
        ],
        "tensorflow": [
            Contestant(
                "tensorflow",
                "TensorFlow ParameterServerStrategy, 2 servers, 2 workers, asynchronous",
                trained_by("peer_tensorflow.py", "tensorflow"),
                peers_environment.TENSORFLOW_STEPS,
            )
        ],
    }


def _reporting(command: list[str]) -> Callable[[DataSet, str], Result]:
    """Returns what runs a program that prints its result as a line of JSON."""

    def run(data: DataSet, log: str) -> Result:
        finished = processes.run(
            command + _settings(data),
            data.folder,
            log,
            RUN_TIMEOUT_S,
            ENVIRONMENT,
        )
        lines = [line for line in finished.output.splitlines() if line.startswith("{")]
        if not lines:
            raise processes.ProgramFailed("printed no result; its log is " + log)
        return _result_of(lines[-1], finished)

    return run


def _settings(data: DataSet) -> list[str]:
    """The flags that peer_common.read_problem reads."""
    return [
        "--data=" + data.folder,
        "--batch_size=%d" % data.batch_size,
        "--epochs=%d" % data.epochs,
        "--learning_rate=%r" % data.learning_rate,
        "--dense_learning_rate=%r" % DENSE_LEARNING_RATE,
    ]


def _result_of(line: str, finished: processes.Finished) -> Result:
    """What a program says that has called peer_common.print_result."""
    said = json.loads(line)
    begin, end = said["begin_unix_s"], said["end_unix_s"]
    return Result(
        said["samples"],
        end - begin,
        finished.processor_seconds(begin, end),
        said["auc"],
        said["logloss"],
    )


class _Pawl:
    """Trains with pawlctl run.

    Timed runs evaluate nothing. A run that evaluates comes before the first; since SYNC repeats
    bit by bit, its score is that of every run with the same digest."""

    def __init__(self, bin_folder: str, flags: list[str] | None = None):
        self._flags = flags or []
        self._pawlctl = os.path.join(bin_folder, "deploy/pawlctl/pawlctl")
        self._scored: dict[str, Result] = {}

    def run(self, data: DataSet, log: str) -> Result:
        """Trains once. The first call for a data set trains once more, for the scores."""
        if data.name not in self._scored:
            self._scored[data.name] = self._train(data, log + "-scored", data.test_file)
        scored = self._scored[data.name]
        timed = self._train(data, log, "")
        if timed.digest != scored.digest:
            raise processes.ProgramFailed(
                "two runs had different digests, %s and %s" % (timed.digest, scored.digest)
            )
        return dataclasses.replace(timed, auc=scored.auc, logloss=scored.logloss)

    def _train(self, data: DataSet, log: str, test_file: str) -> Result:
        out = log + "-run"
        settings: dict[str, object] = {
            "data.train": data.train_file,
            "data.eval": test_file or '""',
            "batch_size": data.batch_size,
            "epochs": data.epochs,
            # As many as the peers have processes.
            "logical_workers": 2,
            "optimizer.adam.learning_rate": DENSE_LEARNING_RATE,
            "sparse_optimizer.adagrad.learning_rate": data.learning_rate,
            "sparse_optimizer.adagrad.initial_accumulator": 0,
            "sparse_optimizer.adagrad.epsilon": 1e-8,
        }
        if test_file:
            # Only at the end.
            settings["evaluation.every_steps"] = 1 << 60
        finished = processes.run(
            [
                self._pawlctl,
                "run",
                "--job=" + data.job_file,
                "--servers=2",
                "--workers=2",
                "--out=" + out,
            ]
            + self._flags
            + ["--set=%s=%s" % setting for setting in settings.items()],
            data.folder,
            log,
            RUN_TIMEOUT_S,
        )
        with open(os.path.join(out, "metrics.json"), encoding="utf-8") as file:
            metrics = json.load(file)
        begin, end = _training_time(os.path.join(out, "logs"))
        scores = metrics.get("eval", {})
        return Result(
            metrics["samples"],
            end - begin,
            finished.processor_seconds(begin, end),
            scores.get("auc", 0.0),
            scores.get("logloss", 0.0),
            metrics["digest"],
        )


class _PawlTorch:
    """Trains peer_pawl.py with pawlctl run."""

    def __init__(self, bin_folder: str, python: str):
        self._bin_folder = bin_folder
        self._python = python

    def run(self, data: DataSet, log: str) -> Result:
        """Trains and evaluates once."""
        out = log + "-run"
        finished = processes.run(
            [
                os.path.join(self._bin_folder, "deploy/pawlctl/pawlctl"),
                "run",
                "--servers=2",
                "--workers=2",
                "--set=partitions=%d" % _partitions(data.job_file),
                "--out=" + out,
                "--",
                self._python,
                os.path.join(HERE, "peer_pawl.py"),
                "--variant=pawl",
                *_settings(data),
            ],
            data.folder,
            log,
            RUN_TIMEOUT_S,
            {
                **ENVIRONMENT,
                "PYTHONPATH": os.path.join(os.path.dirname(os.path.dirname(HERE)), PACKAGE),
                "PAWL_LIBRARY": os.path.join(self._bin_folder, LIBRARY),
            },
        )
        for path in _worker_logs(os.path.join(out, "logs")):
            with open(path, encoding="utf-8") as file:
                lines = [line for line in file if line.startswith("{")]
            if lines:
                return _result_of(lines[-1], finished)
        raise processes.ProgramFailed("printed no result; the logs are in " + out)


def _partitions(job_file: str) -> int:
    """How many the job has that Pawl trains."""
    with open(job_file, encoding="utf-8") as file:
        match = re.search(r"^partitions: (\d+)$", file.read(), re.MULTILINE)
    if match is None:
        raise processes.ProgramFailed("%s does not say the number of partitions" % job_file)
    return int(match.group(1))


def _training_time(logs: str) -> tuple[float, float]:
    """When the first worker started to train, with its data in memory, and when the job ended.

    metrics.json has no such times: its wall_s includes reading the data."""
    begins = []
    for path in _worker_logs(logs):
        begins += _times_in(path, "taking over ranks")
    ends = _times_in(os.path.join(logs, "scheduler.log"), "job state: RUNNING -> FINISHING")
    if not begins or not ends:
        raise processes.ProgramFailed("the logs in %s do not say when training began" % logs)
    return min(begins), max(ends)


def _worker_logs(logs: str) -> list[str]:
    """The logs of all workers. If the job ended very soon, "unnamed-" precedes the name."""
    return glob.glob(os.path.join(logs, "*worker-*.log"))


def _times_in(path: str, text: str) -> list[float]:
    """The Unix times of a log's lines that contain the text."""
    times = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            match = re.match(r"(\d+-\d+-\d+T\d+:\d+:\d+)\.(\d+) ", line)
            if match and text in line:
                moment = time.strptime(match.group(1), "%Y-%m-%dT%H:%M:%S")
                times.append(calendar.timegm(moment) + float("0." + match.group(2)))
    return times
