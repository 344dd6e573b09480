#include "deploy/reference/comment.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipEmpty());
}

}  // namespace

std::string OneLine(absl::string_view text) { return absl::StrJoin(Words(text), " "); }

std::string Wrapped(absl::string_view first, absl::string_view indent, absl::string_view text) {
  std::string lines;
  std::string line(first);
  bool is_empty = true;
  for (const absl::string_view word : Words(text)) {
    if (!is_empty && line.size() + 1 + word.size() > kPageColumns) {
      absl::StrAppend(&lines, line, "\n");
      line = std::string(indent);
      is_empty = true;
    }
    absl::StrAppend(&line, is_empty ? "" : " ", word);
    is_empty = false;
  }
  return absl::StrCat(lines, line, "\n");
}

}  // namespace pawl
