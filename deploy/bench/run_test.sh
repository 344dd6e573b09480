#!/bin/bash
# Runs run_test.py beside the scripts themselves, which Bazel's links lead back to.
set -euo pipefail
readonly BIN_FOLDER="$TEST_SRCDIR/$TEST_WORKSPACE"
exec python3 "$(realpath "$BIN_FOLDER/deploy/bench/run_test.py")" "$BIN_FOLDER" "$@"
