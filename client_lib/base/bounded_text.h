// Text from elsewhere, made fit for messages, logs and terminals.
#ifndef PAWL_CLIENT_LIB_BASE_BOUNDED_TEXT_H_
#define PAWL_CLIENT_LIB_BASE_BOUNDED_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// At most `max_bytes` of `text`, cut between two characters, with a '?' for each byte that is not
// part of valid UTF-8 and for each control character but newlines and tabs. A protobuf string that
// is not UTF-8 cannot be read back: whatever quotes an error, which may quote anything, goes
// through here before it becomes one.
std::string BoundedText(absl::string_view text, size_t max_bytes);

// Whether it would move a terminal's cursor, or look like several lines of a log: bytes below 32,
// and 127.
bool HasControlCharacters(absl::string_view text);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_BOUNDED_TEXT_H_
