#!/bin/bash
# Starts the worker where OpenBLAS does not know the processor, and reads the kernels in use from
# its log.
set -euo pipefail
readonly HERE="$TEST_SRCDIR/$TEST_WORKSPACE/worker"
# The library must come before a sanitizer's own.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"

# Prints the kernels that a worker reports in the given environment.
kernels() {
  env "$@" "$HERE/pawl-worker" --scheduler=127.0.0.1:1 --connect_timeout_s=1 2>&1 |
    sed -n 's/.*OpenBLAS kernels: \(.*\)$/\1/p'
}

expect() {
  local -r wanted="$1" got="$(kernels "${@:2}")"
  [[ "$got" == "$wanted" ]] || { echo "with ${*:2}: kernels '$got' instead of '$wanted'"; exit 1; }
}

best=Prescott
if grep -q '^flags.* avx2 ' /proc/cpuinfo && grep -q '^flags.* fma ' /proc/cpuinfo; then
  best=Haswell
fi
flags="$(grep -m1 '^flags' /proc/cpuinfo || true)"
if [[ $(grep -owE 'avx512(f|bw|dq|vl|cd)' <<<"$flags" | sort -u | wc -l) == 5 ]]; then
  best=SkylakeX
fi
expect "$best" LD_PRELOAD="$HERE/device/cpu/libunknown_processor.so"
# The user's setting is respected.
expect Sandybridge OPENBLAS_CORETYPE=Sandybridge
expect Sandybridge OPENBLAS_CORETYPE=Sandybridge \
  LD_PRELOAD="$HERE/device/cpu/libunknown_processor.so"
