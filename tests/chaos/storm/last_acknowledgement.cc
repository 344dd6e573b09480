#include "tests/chaos/storm/last_acknowledgement.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace pawl {
namespace {

// The part of the notes that is read.
constexpr std::streamoff kTailBytes = 8192;

}  // namespace

MonotonicTime LastAcknowledgement(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - kTailBytes);
  file.seekg(from);
  std::string text(static_cast<size_t>(size - from), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // The text after the last line end is empty or truncated.
  if (!lines.empty()) lines.pop_back();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::vector<absl::string_view> words = absl::StrSplit(*line, ' ');
    int64_t microseconds = 0;
    if (words.size() == 5 && words[0] == "a" && absl::SimpleAtoi(words[4], &microseconds)) {
      return MonotonicTime(std::chrono::microseconds(microseconds));
    }
  }
  return {};
}

}  // namespace pawl
