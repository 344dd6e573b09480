#!/bin/bash
# Runs a Python test with Bazel's programs: run.sh PYTHON TEST [ARG...]
set -euo pipefail
root="$TEST_SRCDIR/$TEST_WORKSPACE"
bin="$(mktemp -d "$TEST_TMPDIR/bin.XXXXXX")"
for program in deploy/pawlctl/pawlctl scheduler/pawl-scheduler server/pawl-server worker/pawl-worker \
  deploy/tls/make_certificates; do
  ln -s "$root/$program" "$bin/"
done
export PAWL_BIN_DIR="$bin" PAWL_LIBRARY="$root/client_lib/c/libpawl.so" PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$root/client_lib/python" PYTHONFAULTHANDLER=1
exec "$1" "$root/$2" "${@:3}"
