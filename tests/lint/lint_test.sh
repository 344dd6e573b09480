#!/bin/bash
# Runs the checker's own test, then the checker over the real tree.
#
# Finds the tree by following Bazel's link for check_tree.py to the file itself, so that it sees
# every file, including those that no target names.
set -euo pipefail
readonly HERE="$(dirname "$(realpath "$TEST_SRCDIR/$TEST_WORKSPACE/tests/lint/check_tree.py")")"
[[ -f "$HERE/../../WORKSPACE" ]] || { echo "lint_test: $HERE is not in a workspace; run it with --spawn_strategy=local" >&2; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
python3 "$HERE/check_tree_test.py"
python3 "$HERE/check_tree.py"
