#!/bin/bash
# Runs pawlctl_test.py; Debian's Bazel has no rules for Python.
set -euo pipefail
readonly HERE="$TEST_SRCDIR/$TEST_WORKSPACE/deploy/pawlctl"
exec python3 "$HERE/pawlctl_test.py" "$HERE/pawlctl" "$HERE/testing/fake_daemon" "$@"
