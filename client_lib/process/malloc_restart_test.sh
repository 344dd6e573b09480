#!/bin/bash
# Starts a program that restarts itself with huge pages, as different users would.
set -euo pipefail
readonly PROGRAM="$TEST_SRCDIR/$TEST_WORKSPACE/client_lib/process/print_tunables"
unset GLIBC_TUNABLES
PATH="$PATH:/usr/sbin:/sbin"

expect() {
  local -r wanted="$1" got="$(timeout 20 "${@:2}")"
  [[ "$got" == "$wanted" ]] || { echo "${*:2}: '$got' instead of '$wanted'"; exit 1; }
}

if ! grep -q '\[madvise\]' /sys/kernel/mm/transparent_hugepage/enabled; then
  expect "none same process" "$PROGRAM"
  exit 0
fi
expect "glibc.malloc.hugetlb=1 same process" "$PROGRAM"
expect "glibc.malloc.arena_max=3:glibc.malloc.hugetlb=1 same process" \
  env GLIBC_TUNABLES=glibc.malloc.arena_max=3 "$PROGRAM"
expect "glibc.malloc.hugetlb=0 same process" env GLIBC_TUNABLES=glibc.malloc.hugetlb=0 "$PROGRAM"

# Started through the loader, the program cannot execute itself again, and runs all the same.
loader="$(readelf --program-headers "$PROGRAM" | sed -n 's/.*interpreter: \(.*\)]$/\1/p')"
got="$("$loader" "$PROGRAM" 2>&1)"
[[ "$got" == *"started through the dynamic loader"*"same process" ]] ||
  { echo "$loader $PROGRAM: '$got'"; exit 1; }

# The loader hides the variable from a program with capabilities: it must not restart forever.
if [[ $EUID != 0 ]] || ! command -v setcap >/dev/null || ! command -v setpriv >/dev/null; then
  echo "not root, or no setcap: a program with capabilities was not tried"
  exit 0
fi
# Another user can reach it, unlike the folder of the test.
folder="$(mktemp -d -p /tmp)"
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cp -L "$PROGRAM" "$folder/program"
if ! setcap cap_net_bind_service+ep "$folder/program"; then
  echo "no capabilities in this file system: a program with them was not tried"
  exit 0
fi
expect "none same process" setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/program"
