#!/bin/bash
# Installs the wheel into a new folder and uses it there, without the build's files.
#
# Usage: wheel_test.sh PYTHON VERSION WHEEL
set -euo pipefail
readonly PYTHON="$1" VERSION="$2" WHEEL="$TEST_SRCDIR/$TEST_WORKSPACE/$3"
readonly ROOT="$(mktemp -d "$TEST_TMPDIR/root.XXXXXX")"
"$PYTHON" -m pip install --quiet --no-deps --no-index --target="$ROOT/site" "$WHEEL"
cp "$TEST_SRCDIR/$TEST_WORKSPACE/deploy/bundle/wheel_test.py" "$ROOT"
cd "$ROOT"
in_clean_environment() { env -i PATH=/usr/bin:/bin HOME="$ROOT" PYTHONPATH="$ROOT/site" "$@"; }
in_clean_environment "$PYTHON" -m pawl demo
in_clean_environment "$PYTHON" wheel_test.py "$VERSION" "$ROOT/site"
in_clean_environment "$ROOT/site/bin/pawl" run --workers=2 --out="$ROOT/out" wheel_test.py "$VERSION" "$ROOT/site" --worker
