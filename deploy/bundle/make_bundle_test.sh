#!/bin/bash
# Runs make_bundle_test.py; Debian's Bazel has no rules for Python.
set -euo pipefail
exec python3 "$(realpath "$TEST_SRCDIR/$TEST_WORKSPACE/deploy/bundle/make_bundle_test.py")"
