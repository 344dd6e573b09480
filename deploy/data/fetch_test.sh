#!/bin/bash
# Tests of deploy/data/fetch without a network: existing files are kept, missing tools are reported.
set -euo pipefail

readonly FETCH="$PWD/deploy/data/fetch"
readonly OUT="$TEST_TMPDIR/out"
readonly BIN="$TEST_TMPDIR/bin"  # before the real programs in PATH

# expect CODE TEXT COMMAND...: the command must exit with CODE and print TEXT.
expect() {
  local code="$1" text="$2" actual=0
  shift 2
  "$@" > "$TEST_TMPDIR/log" 2>&1 || actual=$?
  if [[ "$actual" -ne "$code" ]] || ! grep -qF -- "$text" "$TEST_TMPDIR/log"; then
    echo "FAILED: $*"
    echo "expected exit code $code and '$text', got $actual and:"
    cat "$TEST_TMPDIR/log"
    exit 1
  fi
}

# program NAME LINE: writes a shell script to BIN.
program() {
  printf '#!/bin/bash\n%s\n' "$2" > "$BIN/$1"
  chmod +x "$BIN/$1"
}

mkdir -p "$BIN" "$OUT" "$TEST_TMPDIR/fashion"
export PATH="$BIN:$PATH"
export PAWL_FASHION_MNIST="$TEST_TMPDIR/fashion"

expect 2 "usage:" "$FETCH"
expect 2 "there is no data set 'iris'" "$FETCH" "$OUT" iris

expect 3 "apt-get install dataset-fashion-mnist" "$FETCH" "$OUT" fashion-mnist
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
  touch "$PAWL_FASHION_MNIST/$name-ubyte.gz"
done
expect 0 "Fashion-MNIST is in" "$FETCH" "$OUT" fashion-mnist
[[ -r "$OUT/fashion-mnist/t10k-labels-idx1-ubyte.gz" ]]

# A download that fails; node finds no packages.
program node 'exit 1'
program npm 'echo "npm: no network" >&2; exit 1'
expect 4 "npm could not download" "$FETCH" "$OUT" flights
expect 4 "npm: no network" "$FETCH" "$OUT" flights

# The packages install, but the preparation fails or writes too few rows.
program npm 'exit 0'
expect 5 "could not be prepared" "$FETCH" "$OUT" flights
program node '[[ "$1" == prepare_flights.mjs ]] || exit 1; printf "header\n1\n" > "$2/flights-train.csv"'
expect 5 "flights-train.csv does not have 2497772 rows" "$FETCH" "$OUT" flights

# Complete files are kept, without node or npm.
program node 'exit 1'
program npm 'exit 1'
(set +o pipefail; yes | head -n 2497773 > "$OUT/flights-train.csv"; yes | head -n 502229 > "$OUT/flights-eval.csv")
expect 0 "flights are already in" "$FETCH" "$OUT" flights
(set +o pipefail; yes | head -n 502228 > "$OUT/flights-eval.csv")
expect 4 "npm could not download" "$FETCH" "$OUT" flights
echo PASSED
