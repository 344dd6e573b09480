"""One rank's share of an evaluation, as the scheduler merges it with those of other ranks."""

from __future__ import annotations

import base64
import json
from typing import Any, Iterator, Optional

import numpy as np

from pawl import errors
from pawl.client import Client
from pawl.futures import Future

# As EvaluationReport of pawl-worker: a message has at most 1 MiB of them.
_SCORES_IN_PART = 65536


def report(
    client: Client, header: dict[str, Any], scores: Any, labels: Any
) -> Future[dict[str, Any]]:
    """Sends the share, and returns the call of its last message, whose result is the evaluation's.

    Waits for the messages before the last. The arguments are those of parts().
    """
    last: Optional[Future[dict[str, Any]]] = None
    for part in parts(header, scores, labels):
        if last is not None:
            last.wait()
        last = client.call(
            "pawl_report_evaluation", json.dumps(part).encode(), 0, convert=_result_of
        )
    assert last is not None
    return last


def parts(header: dict[str, Any], scores: Any, labels: Any) -> Iterator[dict[str, Any]]:
    """Messages pawl.ReportEvaluationRequest for a model with logistic loss.

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
