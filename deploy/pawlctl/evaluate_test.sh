#!/bin/bash
# Runs evaluate_test.py; Debian's Bazel has no rules for Python.
set -euo pipefail
readonly HERE="$TEST_SRCDIR/$TEST_WORKSPACE/deploy/pawlctl"
exec python3 "$HERE/evaluate_test.py" "$HERE/pawlctl" "$@"
