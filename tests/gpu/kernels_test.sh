#!/bin/bash
# Runs gpu_kernels on the CPU, and checks its message on a machine without a GPU.
#
# Usage: kernels_test.sh PROGRAM
set -euo pipefail

program="$1"
fail() {
  echo "kernels_test: $*" >&2
  exit 1
}

"$program" --device=cpu --samples=64 --row_ms=1 >"$TEST_TMPDIR/report.json" || fail "cannot measure the CPU"
python3 - "$TEST_TMPDIR/report.json" <<'END' || fail "the report is not as it should be"
import json, sys
report = json.load(open(sys.argv[1]))
operations = {kernel["operation"].split(" (")[0].split(",")[0] for kernel in report["kernels"]}
assert operations == {
    "AddBias", "AddConstant", "Axpy", "Copy", "FindNotFinite", "Gemm", "LogisticLoss", "PairwiseDots",
    "PairwiseDotsBackward", "PoolRows", "PoolRowsBackward", "Relu", "ReluBackward", "Scale", "SoftmaxLoss", "SquaredLoss", "SumColumns", "SumOfDots",
    "SumOfDotsBackward", "Update", "Zero"}, operations
assert report["copy_bytes_per_s"] > 0 and report["gemm_operations_per_s"] > 0
assert all(kernel["time_us"] > 0 and kernel["floor_us"] > 0 for kernel in report["kernels"])
END

code=0
"$program" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/error" || code=$?
if [[ $code != 0 ]]; then
  [[ $code == 3 ]] || fail "without a GPU it ended with $code"
  grep -Eq 'use cpu|GPU|driver' "$TEST_TMPDIR/error" || fail "it does not say what is missing: $(cat "$TEST_TMPDIR/error")"
fi
code=0
"$program" --device=tpu 2>"$TEST_TMPDIR/error" || code=$?
[[ $code == 2 ]] || fail "an unknown device gave $code"
