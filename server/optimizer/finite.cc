#include "server/optimizer/finite.h"

#include <cstdint>
#include <cstring>

namespace pawl {
namespace {

// A bad value ends the search after this many floats at most.
constexpr size_t kChunk = 4096;

PAWL_ALWAYS_INLINE bool AllFiniteBody(const void* floats, size_t count) {
  const char* at = static_cast<const char*>(floats);
  while (count > 0) {
    const size_t chunk = count < kChunk ? count : kChunk;
    // The exponent of Inf and NaN is all ones; adding one to it carries into the sign's place.
    uint32_t carry = 0;
    for (size_t i = 0; i < chunk; ++i) {
      uint32_t bits;
      std::memcpy(&bits, at + i * sizeof bits, sizeof bits);
      carry |= (bits & 0x7FFFFFFFu) + 0x00800000u;
    }
    if (carry & 0x80000000u) return false;
    at += chunk * sizeof(float);
    count -= chunk;
  }
  return true;
}

bool AllFinitePortable(const void* floats, size_t count) { return AllFiniteBody(floats, count); }
PAWL_TARGET_AVX2 bool AllFiniteAvx2(const void* floats, size_t count) { return AllFiniteBody(floats, count); }
PAWL_TARGET_AVX512 bool AllFiniteAvx512(const void* floats, size_t count) { return AllFiniteBody(floats, count); }

}  // namespace

bool AllFinite(const void* floats, size_t count, Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
      return AllFiniteAvx2(floats, count);
    case Isa::kAvx512:
      return AllFiniteAvx512(floats, count);
  }
  return AllFinitePortable(floats, count);
}

bool AllFinite(const void* floats, size_t count) {
  static const Isa isa = BestIsa();
  return AllFinite(floats, count, isa);
}

}  // namespace pawl
