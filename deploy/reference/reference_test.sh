#!/bin/bash
# Tests that the generated pages are up to date.
set -uo pipefail
cd "$TEST_SRCDIR/$TEST_WORKSPACE/deploy/reference"
code=0
pages=(made/*.md)
[[ ${#pages[@]} -ge 4 ]] || { echo "reference_test: the pages are missing" >&2; exit 1; }
for page in "${pages[@]}"; do
  if ! diff -u "${page#made/}" "$page"; then
    echo "reference_test: deploy/reference/${page#made/} is outdated; run deploy/reference/generate" >&2
    code=1
  fi
done
exit "$code"
