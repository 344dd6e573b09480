// Makes text from outside safe for messages, logs and terminals.
#ifndef PAWL_CLIENT_LIB_BASE_BOUNDED_TEXT_H_
#define PAWL_CLIENT_LIB_BASE_BOUNDED_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// Returns at most `max_bytes` of `text`, truncated between characters. Replaces each byte that is
// not part of valid UTF-8, and each control character except newline and tab, by '?'. Protobuf
// cannot parse a string that is not UTF-8, so every error text that quotes such text must pass
// through here.
std::string BoundedText(absl::string_view text, size_t max_bytes);

// Whether `text` contains bytes below 32, or 127, which could move a terminal's cursor or forge
// lines of a log.
bool HasControlCharacters(absl::string_view text);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_BOUNDED_TEXT_H_
