// The comments of .proto files as text of a page.
#ifndef PAWL_DEPLOY_REFERENCE_COMMENT_H_
#define PAWL_DEPLOY_REFERENCE_COMMENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace pawl {

// The width to which text is wrapped.
inline constexpr size_t kPageColumns = 100;

// The comments before and after the declaration, as one line; empty if it has none. REQUIRES: the
// descriptor's pool has source info (protoc --include_source_info).
template <typename T>
std::string CommentOf(const T& descriptor);

// `first` and the words of `text`, wrapped to kPageColumns. All lines but the first start with
// `indent`.
std::string Wrapped(absl::string_view first, absl::string_view indent, absl::string_view text);

// The words of `text` in one line, separated by single spaces.
std::string OneLine(absl::string_view text);

template <typename T>
std::string CommentOf(const T& descriptor) {
  google::protobuf::SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return "";
  return OneLine(location.leading_comments + " " + location.trailing_comments);
}

}  // namespace pawl

#endif  // PAWL_DEPLOY_REFERENCE_COMMENT_H_
