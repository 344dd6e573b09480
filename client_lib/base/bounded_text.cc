#include "client_lib/base/bounded_text.h"

#include <algorithm>

namespace pawl {
namespace {

bool IsControl(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return code < 0x20 || code == 0x7f;
}

// The length of the character at the start of `text`; 0 if the bytes are not valid UTF-8. REQUIRES:
// `text` is not empty.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  // The range of the second byte excludes overlong forms, surrogates, and numbers beyond U+10FFFF.
  size_t bytes = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    bytes = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    bytes = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    bytes = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  }
  if (bytes == 0 || text.size() < bytes || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

}  // namespace

std::string BoundedText(absl::string_view text, size_t max_bytes) {
  std::string bounded;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const bool shown =
        bytes > 1 || (bytes == 1 && (!IsControl(text[0]) || text[0] == '\n' || text[0] == '\t'));
    const absl::string_view next = shown ? text.substr(0, bytes) : "?";
    if (bounded.size() + next.size() > max_bytes) break;
    bounded.append(next.data(), next.size());
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return bounded;
}

bool HasControlCharacters(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), IsControl);
}

}  // namespace pawl
