// The comments of .proto files as text of a page.
#ifndef PAWL_DEPLOY_REFERENCE_COMMENT_H_
#define PAWL_DEPLOY_REFERENCE_COMMENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace pawl {

// Longer lines are broken between words.
inline constexpr size_t kPageColumns = 120;

// What stands above and behind the declaration, as one line; empty if nothing does. The
// descriptor's pool must have been built with source info (protoc --include_source_info).
template <typename T>
std::string CommentOf(const T& descriptor);

// `first` and the words of `text`, in lines of at most kPageColumns characters, each but the first
// begun with `indent`.
std::string Wrapped(absl::string_view first, absl::string_view indent, absl::string_view text);

// One line of words with single spaces.
std::string OneLine(absl::string_view text);

template <typename T>
std::string CommentOf(const T& descriptor) {
  google::protobuf::SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return "";
  return OneLine(location.leading_comments + " " + location.trailing_comments);
}

}  // namespace pawl

#endif  // PAWL_DEPLOY_REFERENCE_COMMENT_H_
