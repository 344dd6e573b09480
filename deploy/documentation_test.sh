#!/bin/bash
# Runs documentation_test.py beside the documents themselves, which Bazel's links lead back to.
set -euo pipefail
readonly BIN_FOLDER="$TEST_SRCDIR/$TEST_WORKSPACE"
exec python3 "$(realpath "$BIN_FOLDER/deploy/documentation_test.py")" "$BIN_FOLDER" "$@"
