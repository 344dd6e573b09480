// Errors about malformed input, and numbers in text files.
#ifndef PAWL_WORKER_DATA_READERS_MALFORMED_H_
#define PAWL_WORKER_DATA_READERS_MALFORMED_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pawl {

// INVALID_ARGUMENT "file:line:column: what"; line and column count from 1, the column in bytes.
inline absl::Status MalformedAt(absl::string_view file, uint64_t line, uint64_t column,
                                absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ":", line, ":", column, ": ", what));
}

// Makes `text` from a file printable: quoted, shortened, without control characters.
inline std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxShownBytes = 40;
  const bool shortened = text.size() > kMaxShownBytes;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxShownBytes)),
                      shortened ? "...'" : "'");
}

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_MALFORMED_H_
