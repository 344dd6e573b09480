#!/bin/bash
# training_step measures the step, repeats it to the bit, and writes a complete dump.
set -euo pipefail
readonly PROGRAM="$TEST_SRCDIR/$TEST_WORKSPACE/tests/gpu/training_step/training_step"
readonly QUICK=(--samples=64 --categories=20 --runs=3)

for model in dlrm deepfm; do
  for turn in 1 2; do
    "$PROGRAM" --model=$model "${QUICK[@]}" --dump="$TEST_TMPDIR/$model-$turn"
  done
  cmp "$TEST_TMPDIR/$model-1/step.bin" "$TEST_TMPDIR/$model-2/step.bin"
  python3 - "$TEST_TMPDIR/$model-1" << 'END'
import json, math, os, sys
header = json.load(open(sys.argv[1] + "/step.json"))
names = [array["name"] for array in header["arrays"]]
assert names[:3] == ["labels", "numerics", "entry_key"] and "gradient/embedding" in names, names
numbers = sum(math.prod(array["shape"]) for array in header["arrays"])
assert os.path.getsize(sys.argv[1] + "/step.bin") == 4 * numbers, numbers
assert 0.5 < header["loss"] < 1 and 0 < header["best_ms"] <= header["median_ms"], header
END
done

expect() {
  local code=0
  "$PROGRAM" "${@:2}" > "$TEST_TMPDIR/out" 2>&1 || code=$?
  [[ $code -eq $1 ]] || { echo "exit code $code, expected $1: ${*:2}"; cat "$TEST_TMPDIR/out"; exit 1; }
}
expect 0 --help
expect 0 --version
expect 2 --model=fm
expect 2 --device=gpu
expect 2 --no_such_flag
expect 2 argument
expect 2 --runs=0
expect 2 --samples=9999999
