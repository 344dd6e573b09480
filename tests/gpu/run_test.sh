#!/bin/bash
# Runs run_test.py; Debian's Bazel has no rules for Python.
set -euo pipefail
exec python3 "$(realpath "$TEST_SRCDIR/$TEST_WORKSPACE/tests/gpu/run_test.py")"
