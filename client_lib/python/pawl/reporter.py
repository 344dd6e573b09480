"""What a worker tells the scheduler: progress, losses, figures and shares of evaluations."""

from __future__ import annotations

import base64
import ctypes
import json
import logging
import math
import time
from typing import Any, Iterator, Mapping, Optional

import numpy as np

from pawl import _abi, errors
from pawl.client import Client
from pawl.futures import Future, milliseconds

_log = logging.getLogger("pawl")

# How often progress goes to the scheduler.
_PROGRESS_INTERVAL_S = 0.5
# The rest of a failure's reason is cut off.
_MAX_REASON_LENGTH = 4000
# As EvaluationReport of pawl-worker: a message has at most 1 MiB of them.
_SCORES_IN_PART = 65536
# As kRendezvousTimeout and kMaxRendezvousAttempts of pawl-worker: an evaluation waits for all
# ranks, and is reported again to a scheduler that has restarted.
_EVALUATION_TIMEOUT_S = 24 * 3600.0
_MAX_REPORTS = 100
# How long report_evaluation waits at once for the answer to one message.
_PART_WAIT_S = 1.0


def progress_bar(steps: Optional[int]) -> Any:
    """A bar of tqdm, with a total unless `steps` is None."""
    try:
        from tqdm.auto import tqdm  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise errors.FailedPreconditionError("progress: pip install tqdm") from error
    return tqdm(total=steps, unit="step")


class Reporter:
    """Sends a worker's reports. Use it from one thread."""

    def __init__(self, client: Client):
        self._client = client
        self._sent_at = 0.0
        self._loss = 0.0
        # Names of figures that were not finite.
        self._not_finite: set[str] = set()

    def set_loss(self, loss: float) -> None:
        """Sets the loss of the reports that follow, unless it is not finite."""
        # Not a number: of no samples, or the training diverges.
        if math.isfinite(loss):
            self._loss = float(loss)

    def is_due(self) -> bool:
        """Whether the latest progress is old enough for another report."""
        return time.monotonic() - self._sent_at >= _PROGRESS_INTERVAL_S

    def send_progress(self, progress: Mapping[str, Any]) -> None:
        """Sends progress (fields of pawl.WorkerProgress without the loss), without waiting."""
        self._sent_at = time.monotonic()
        _abi.check(
            _abi.invoke("pawl_report_progress", self._client.handle, self._encode(progress))
        )

    def finish_rank(self, rank: int, progress: Mapping[str, Any], failure: str = "") -> Any:
        """Reports that a rank has done its steps, or that the job has failed. Returns the call."""
        extra = {"failure": failure[:_MAX_REASON_LENGTH]} if failure else {}
        return self._client.call(
            "pawl_finish_rank", rank, self._encode({**progress, **extra}), 0
        )

    def log(self, figures: Mapping[str, Any], step: int) -> None:
        """Reports figures of the program, without waiting. Job.log states names and errors."""
        for name, figure in figures.items():
            try:
                value = float(figure.item() if hasattr(figure, "item") else figure)
            except (TypeError, ValueError, RuntimeError, OverflowError) as error:
                raise errors.InvalidArgumentError(
                    "metric %r is a %s; it must be one number" % (name, type(figure).__name__)
                ) from error
            if not math.isfinite(value):
                if name not in self._not_finite:
                    self._not_finite.add(name)
                    _log.warning("metric %r is %s and is left out (said once)", name, value)
                continue
            _abi.check(
                _abi.invoke(
                    "pawl_log_metric", self._client.handle, str(name).encode(), step, value
                )
            )

    def report_evaluation(
        self, header: dict[str, Any], scores: Any, labels: Any
    ) -> Future[dict[str, Any]]:
        """Sends a rank's share. The result is that of the whole evaluation.

        Waits for the answers to all messages but the last. The arguments are those of
        evaluation_parts().
        """
        parts = [json.dumps(part).encode() for part in evaluation_parts(header, scores, labels)]
        report = _Report(self._client, parts)
        while not report.has_sent_all():
            report.done(_PART_WAIT_S)
        return report

    def _encode(self, progress: Mapping[str, Any]) -> bytes:
        return json.dumps({**progress, "loss": self._loss}).encode()


class _Report(Future[dict[str, Any]]):
    """The calls that report a rank's share of an evaluation: the next one starts in done or wait.

    A scheduler that restarts forgets the parts of shares that are not complete. It refuses the last
    part then, and gets all of them again.
    """

    def __init__(self, client: Client, parts: list[bytes]):
        super().__init__(ctypes.c_void_p())
        self._client = client
        # The lock of the base class guards the rest.
        self._parts = parts
        self._reports = 1
        # The part that was sent last.
        self._part = 0
        self._sent = self._send(0)

    def has_sent_all(self) -> bool:
        """Whether the last part has been sent, or the report has failed."""
        return self._ended or self._part + 1 == len(self._parts)

    def descriptor(self) -> int:
        """See Future."""
        return self._sent.descriptor()

    def _poll(self, timeout_ms: int) -> bool:
        sent = self._sent
        if self._ended or not sent.done(timeout_ms / 1000):
            return self._ended
        with self._lock:
            # Another thread may have been first.
            if not self._ended and sent is self._sent:
                self._on_answer(sent)
            return self._ended

    def _on_answer(self, sent: Future[dict[str, Any]]) -> None:
        try:
            try:
                self._value = sent.wait()
                part = self._part + 1
            except errors.FailedPreconditionError:
                # Only the last part is refused for others that are missing.
                is_last = self._part + 1 == len(self._parts)
                if len(self._parts) == 1 or not is_last or self._reports == _MAX_REPORTS:
                    raise
                self._reports += 1
                part = 0
            if part < len(self._parts):
                self._sent, self._part = self._send(part), part
                return
        except errors.Error as error:
            self._error = error
        self._parts, self._ended = [], True

    def _send(self, part: int) -> Future[dict[str, Any]]:
        return self._client.call(
            "pawl_report_evaluation",
            self._parts[part],
            milliseconds(_EVALUATION_TIMEOUT_S),
            convert=_result_of,
        )


def evaluation_parts(header: dict[str, Any], scores: Any, labels: Any) -> Iterator[dict[str, Any]]:
    """Messages pawl.ReportEvaluationRequest with a rank's share, for a model with logistic loss.

    Args:
      header: the fields that all messages have.
      scores: logits, one a sample.
      labels: 0 or 1 (above 0 counts as 1), one a sample.
    """
    logits, truth = _flat(scores, "scores"), _flat(labels, "labels")
    if len(logits) != len(truth):
        raise errors.InvalidArgumentError(
            "evaluate: %d scores and %d labels" % (len(logits), len(truth))
        )
    if not np.isfinite(logits).all():
        raise errors.InvalidArgumentError(
            "evaluate: scores[%d] is %s; the training has diverged, try a lower learning rate"
            % (np.argmin(np.isfinite(logits)), logits[np.argmin(np.isfinite(logits))])
        )
    positive = truth > 0
    # log(1 + exp(x)) - y x, without overflow.
    x = logits.astype(np.float64)
    losses = np.maximum(x, 0) - x * positive + np.log1p(np.exp(-np.abs(x)))
    sums = {
        "samples": len(logits),
        "logloss_sum": float(losses.sum()),
        "correct": int(((logits > 0) == positive).sum()),
    }
    # 0.0 and -0.0 are one score.
    distinct, places = np.unique(logits + np.float32(0), return_inverse=True)
    positives = np.bincount(places[positive], minlength=len(distinct))
    negatives = np.bincount(places[~positive], minlength=len(distinct))
    count = max(1, -(-len(distinct) // _SCORES_IN_PART))
    for part in range(count):
        piece = slice(part * _SCORES_IN_PART, (part + 1) * _SCORES_IN_PART)
        yield {
            **header,
            **(sums if part == 0 else {}),
            "part": part,
            "parts": count,
            "scores": base64.b64encode(distinct[piece].astype("<f4").tobytes()).decode(),
            "positives": positives[piece].tolist(),
            "negatives": negatives[piece].tolist(),
        }


def _flat(values: Any, name: str) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise errors.InvalidArgumentError(
            "evaluate: %s are %s, not numbers" % (name, array.dtype)
        )
    return array.astype(np.float32).reshape(-1)


def _result_of(text: str) -> dict[str, Any]:
    return json.loads(text).get("result", {})
