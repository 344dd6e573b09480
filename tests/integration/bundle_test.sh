#!/bin/bash
# Runs bundle_test.py on the archive; Debian's Bazel has no rules for Python.
set -euo pipefail
readonly HERE="$TEST_SRCDIR/$TEST_WORKSPACE"
exec python3 "$HERE/tests/integration/bundle_test.py" "$HERE/deploy/bundle/pawl.tar.gz" "$@"
