// Numbers in text files.
#ifndef PAWL_WORKER_DATA_READERS_NUMBER_H_
#define PAWL_WORKER_DATA_READERS_NUMBER_H_

#include <charconv>
#include <cmath>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace pawl {

// Parses all of `text`, blanks around it apart, as a decimal number; a '+' may
// come first. False for anything else, also for infinities, NaN and what is out
// of double's range.
inline bool ParseNumber(absl::string_view text, double* number) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return false;
  }
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, *number);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(*number);
}

// The same for what must be finite as a float.
inline bool ParseFloat(absl::string_view text, float* number) {
  double wide = 0;
  if (!ParseNumber(text, &wide)) return false;
  *number = static_cast<float>(wide);
  return std::isfinite(*number);
}

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_NUMBER_H_
