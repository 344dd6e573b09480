#!/bin/bash
# Runs platforms_test.py beside the files that it tests, which Bazel's links lead back to.
set -euo pipefail
readonly BIN_FOLDER="$TEST_SRCDIR/$TEST_WORKSPACE"
exec python3 "$(realpath "$BIN_FOLDER/deploy/platforms_test.py")" "$BIN_FOLDER" "$@"
