#!/bin/bash
# Runs experiments_test.py beside the experiments themselves, which Bazel's links lead back to.
set -euo pipefail
readonly HERE="$TEST_SRCDIR/$TEST_WORKSPACE/deploy"
exec python3 "$(realpath "$HERE/experiments/experiments_test.py")" "$(realpath "$HERE/pawlctl/pawlctl")"
