#include "server/storage/testing/worked_bytes.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/env.h"

namespace pawl {

std::string ReadWorkedBytes(absl::string_view file) {
  // Tests run in the workspace root of their runfiles.
  const absl::StatusOr<std::string> text = ReadWholeFile(Env::Real(), std::string(file), 1 << 20);
  if (!text.ok()) std::abort();
  std::string bytes;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (line.size() < 16 || line.substr(0, 4) != "    " || line.substr(12, 2) != "  ") continue;
    uint64_t offset = 0;
    if (!absl::SimpleHexAtoi(line.substr(4, 8), &offset)) continue;
    if (offset != bytes.size()) {
      std::fprintf(stderr, "%s: the offset of this line should be %08zx: %s\n",
                   std::string(file).c_str(), bytes.size(), std::string(line).c_str());
      std::abort();
    }
    for (absl::string_view rest = line.substr(14); rest.size() >= 2 && rest[0] != ' ';) {
      bytes += absl::HexStringToBytes(rest.substr(0, 2));
      rest.remove_prefix(rest.size() > 2 ? 3 : 2);
    }
  }
  return bytes;
}

std::string FormatWorkedBytes(absl::string_view bytes) {
  std::string text;
  for (size_t offset = 0; offset < bytes.size(); offset += 16) {
    absl::StrAppendFormat(&text, "    %08x  ", offset);
    for (const char c : bytes.substr(offset, 16))
      absl::StrAppendFormat(&text, "%02x ", static_cast<unsigned char>(c));
    text.back() = '\n';
  }
  return text;
}

}  // namespace pawl
