#!/usr/bin/env python3
"""Writes the data of the bundle's example job, the same on every machine.

Usage: make_example_data.py TRAIN_FILE EVAL_FILE

Clicks: five fields of 50 categories each, and a label drawn from the logistic of a sum over the
categories and over pairs of them, so that a model with factors has something to learn.
"""

import hashlib
import math
import sys

FIELDS = 5
CATEGORIES = 50
TRAIN_SAMPLES = 20000
EVAL_SAMPLES = 5000


def uniform(*what):
    """Returns a number in [0, 1) that depends on `what` only."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "little") / 2.0**48


def write(path, samples, name):
    places = [[(field, category) for category in range(CATEGORIES)] for field in range(FIELDS)]
    weights = [[2 * uniform("weight", *place) - 1 for place in row] for row in places]
    signs = [[1 if uniform("sign", *place) < 0.5 else -1 for place in row] for row in places]
    with open(path, "w", encoding="ascii") as file:
        for sample in range(samples):
            # Small numbers are more frequent.
            chosen = [
                int(CATEGORIES * uniform(name, sample, field) ** 2) for field in range(FIELDS)
            ]
            score = sum(weights[field][category] for field, category in enumerate(chosen))
            score += signs[0][chosen[0]] * signs[1][chosen[1]]
            label = int(uniform(name, sample, "label") < 1 / (1 + math.exp(-2 * score)))
            indices = [field * CATEGORIES + category + 1 for field, category in enumerate(chosen)]
            file.write("%d %s\n" % (label, " ".join("%d:1" % index for index in indices)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(sys.argv[1], TRAIN_SAMPLES, "train")
    write(sys.argv[2], EVAL_SAMPLES, "eval")
