#!/bin/bash
# Runs local_node_test.py; Debian's Bazel has no rules for Python.
set -euo pipefail
readonly HERE="$TEST_SRCDIR/$TEST_WORKSPACE/deploy/pawlctl"
exec python3 "$HERE/local_node_test.py" "$HERE/pawlctl" \
  "$TEST_SRCDIR/$TEST_WORKSPACE/scheduler/pawl-scheduler" "$@"
