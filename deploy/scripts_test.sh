#!/bin/bash
# Runs scripts_test.py beside the scripts themselves, which Bazel's links lead back to.
set -euo pipefail
exec python3 "$(realpath "$TEST_SRCDIR/$TEST_WORKSPACE/deploy/scripts_test.py")"
