// Parses numbers in text files, and reports malformed input.
#ifndef PAWL_WORKER_DATA_READERS_TEXT_INPUT_H_
#define PAWL_WORKER_DATA_READERS_TEXT_INPUT_H_

#include <charconv>
#include <cmath>
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

// Parses digits with at most one point among them, if they make up all of `text` and the number is
// so short that double arithmetic gives the nearest double (Clinger 1990). Most numbers of data
// files are; this is faster than from_chars, with the same result. False for anything else.
inline bool ParseShortNumber(absl::string_view text, double* number) {
  // 10^15 < 2^53, and 10^15 is a double.
  constexpr size_t kMaxDigits = 15;
  static constexpr double kPowers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  if (text.empty() || text.size() > kMaxDigits) return false;
  uint64_t digits = 0;
  size_t fraction = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; at != end; ++at) {
    const unsigned digit = static_cast<unsigned char>(*at) - unsigned{'0'};
    if (digit > 9) break;
    digits = digits * 10 + digit;
  }
  if (at != end) {
    if (*at != '.' || text.size() == 1) return false;
    fraction = static_cast<size_t>(end - at) - 1;
    for (++at; at != end; ++at) {
      const unsigned digit = static_cast<unsigned char>(*at) - unsigned{'0'};
      if (digit > 9) return false;
      digits = digits * 10 + digit;
    }
  }
  *number = static_cast<double>(digits) / kPowers[fraction];
  return true;
}

// Parses all of `text`, except surrounding blanks, as a decimal number with an optional '+'.
// Returns false for anything else, including infinities, NaN and numbers out of double's range.
inline bool ParseNumber(absl::string_view text, double* number) {
  if (ParseShortNumber(text, number)) return true;
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

// Also requires that the number is finite as a float.
inline bool ParseFloat(absl::string_view text, float* number) {
  double wide = 0;
  if (!ParseNumber(text, &wide)) return false;
  *number = static_cast<float>(wide);
  return std::isfinite(*number);
}

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_TEXT_INPUT_H_
