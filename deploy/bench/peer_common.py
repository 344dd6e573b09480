"""What the programs that train with a peer share: flags, samples, scores and the printed result.

A peer's program prints one line of JSON, as tests/perf/limit_deepfm.cc does: when training began
and ended, how many samples it trained, and the scores on the test samples."""

import argparse
import dataclasses
import json
import os
import time

import numpy as np

DIM = 16
HIDDEN = (64, 32)
INIT_STDDEV = 0.01
ADAGRAD_EPSILON = 1e-8
SEED = 7


@dataclasses.dataclass
class Samples:
    """Samples of bench_data: the row of each field, and the label."""

    rows: np.ndarray  # int64 [samples, fields]
    labels: np.ndarray  # float32 [samples]


@dataclasses.dataclass
class Problem:
    """What to train, on which samples, and how."""

    variant: str
    field_rows: list[int]
    train: Samples
    test: Samples
    batch_size: int
    epochs: int
    learning_rate: float
    dense_learning_rate: float
    threads: int

    @property
    def rows(self) -> int:
        """The rows of all fields."""
        return sum(self.field_rows)

    @property
    def first_rows(self) -> np.ndarray:
        """The first row of each field."""
        return np.concatenate([[0], np.cumsum(self.field_rows)[:-1]])


def read_samples(path: str, samples: int, fields: int) -> Samples:
    """Reads PATH.rows and PATH.labels."""
    rows = np.fromfile(path + ".rows", dtype="<u4").reshape(samples, fields).astype(np.int64)
    return Samples(rows, np.fromfile(path + ".labels", dtype="<f4"))


def read_problem() -> Problem:
    """Reads the command line and the samples it names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--dense_learning_rate", type=float, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with open(os.path.join(options.data, "data.json"), encoding="ascii") as file:
        description = json.load(file)
    fields = len(description["field_rows"])
    return Problem(
        options.variant,
        description["field_rows"],
        read_samples(os.path.join(options.data, "train"), description["train"], fields),
        read_samples(os.path.join(options.data, "test"), description["test"], fields),
        options.batch_size,
        options.epochs,
        options.learning_rate,
        options.dense_learning_rate,
        options.threads,
    )


def auc(logits: np.ndarray, labels: np.ndarray) -> float:
    """The share of pairs of a positive and a negative sample that are in the right order."""
    _, inverse, counts = np.unique(logits, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    positives = labels > 0
    count = int(positives.sum())
    sum_of_ranks = float(ranks[inverse][positives].sum())
    return (sum_of_ranks - count * (count + 1) / 2) / (count * (len(labels) - count))


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """The mean of -log(probability of the label)."""
    logits = logits.astype(np.float64)
    return float(np.mean(np.logaddexp(0, logits) - logits * labels))


def print_result(problem: Problem, begin: float, end: float, logits: np.ndarray) -> None:
    """Prints the line of JSON that deploy/bench/run reads."""
    print(
        json.dumps(
            {
                "begin_unix_s": begin,
                "end_unix_s": end,
                "samples": len(problem.train.labels) * problem.epochs,
                "auc": auc(logits, problem.test.labels),
                "logloss": log_loss(logits, problem.test.labels),
            }
        ),
        flush=True,
    )


def now() -> float:
    """Seconds since 1970."""
    return time.time()
