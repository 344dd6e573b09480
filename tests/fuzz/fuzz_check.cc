#include "tests/fuzz/fuzz_check.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace pawl {

void FuzzCheck(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

Fragments::Fragments(std::string_view bytes, size_t fragment_size) {
  for (size_t begin = 0; begin < bytes.size(); begin += fragment_size) {
    const size_t count = std::min(fragment_size, bytes.size() - begin);
    memory_.emplace_back(new char[count]);
    bytes.copy(memory_.back().get(), count, begin);
    view_.Append(memory_.back().get(), count);
  }
}

}  // namespace pawl
