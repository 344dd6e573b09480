#!/bin/bash
# First the checker's own test, then the checker over the real tree.
#
# The tree is found by following the link that Bazel makes for check_tree.py back
# to the file itself: so every file is seen, also one that no target names.
set -euo pipefail
readonly HERE="$(dirname "$(realpath "$TEST_SRCDIR/$TEST_WORKSPACE/tests/lint/check_tree.py")")"
[[ -f "$HERE/../../WORKSPACE" ]] || { echo "lint_test: $HERE is not in a workspace; run it with --spawn_strategy=local" >&2; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
python3 "$HERE/check_tree_test.py"
python3 "$HERE/check_tree.py"
