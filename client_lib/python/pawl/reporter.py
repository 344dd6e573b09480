"""What a worker tells the scheduler about its training: progress, losses and figures."""

from __future__ import annotations

import json
import logging
import math
import time
from typing import Any, Mapping

from pawl import _abi, errors
from pawl.client import Client

_log = logging.getLogger("pawl")

# How often progress goes to the scheduler.
_PROGRESS_INTERVAL_S = 0.5
# Of a failure's reason.
_MAX_REASON_LENGTH = 4000


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

    def _encode(self, progress: Mapping[str, Any]) -> bytes:
        return json.dumps({**progress, "loss": self._loss}).encode()
