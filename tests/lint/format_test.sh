#!/bin/bash
# Checks that every source file is formatted by .clang-format.
#
# Finds the tree in the same way as lint_test.sh.
set -euo pipefail
readonly HERE="$(dirname "$(realpath "$TEST_SRCDIR/$TEST_WORKSPACE/tests/lint/check_tree.py")")"
cd "$HERE/../.."
[[ -f WORKSPACE && -f .clang-format ]] || { echo "format_test: $PWD is not the workspace" >&2; exit 1; }
command -v clang-format > /dev/null || { echo "format_test: clang-format is not installed; run deploy/install_packages" >&2; exit 1; }

readonly FOLDERS=(client_lib server scheduler worker tests deploy proto)
mapfile -d '' -t sources < <(find "${FOLDERS[@]}" -name node_modules -prune -o -type f \
  \( -name '*.cc' -o -name '*.h' -o -name '*.cu' \) -print0 | sort -z)
((${#sources[@]} > 100)) || { echo "format_test: only ${#sources[@]} source files found" >&2; exit 1; }
if ! printf '%s\0' "${sources[@]}" | xargs -0 -n 50 -P 2 clang-format --dry-run --Werror --ferror-limit=3; then
  echo "format_test: run clang-format -i on these files" >&2
  exit 1
fi
echo "format_test: ${#sources[@]} files"
