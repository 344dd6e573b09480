#include "server/optimizer/math/finite.h"

#include <cstdint>
#include <cstring>

namespace pawl {
namespace {

// After a bad value, the search ends within this many numbers.
constexpr size_t kChunk = 4096;

// Inf and NaN have an exponent of all ones; adding one to it (`exponent_one`) carries into the sign
// bit.
template <typename Bits>
PAWL_ALWAYS_INLINE bool AllFiniteBody(const void* numbers, size_t count, Bits exponent_one) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  const char* at = static_cast<const char*>(numbers);
  while (count > 0) {
    const size_t chunk = count < kChunk ? count : kChunk;
    Bits carry = 0;
    for (size_t i = 0; i < chunk; ++i) {
      Bits bits;
      std::memcpy(&bits, at + i * sizeof bits, sizeof bits);
      carry |= static_cast<Bits>((bits & static_cast<Bits>(~kSign)) + exponent_one);
    }
    if (carry & kSign) return false;
    at += chunk * sizeof(Bits);
    count -= chunk;
  }
  return true;
}

template <typename Bits>
bool AllFinitePortable(const void* numbers, size_t count, Bits exponent_one) {
  return AllFiniteBody(numbers, count, exponent_one);
}
template <typename Bits>
PAWL_TARGET_AVX2 bool AllFiniteAvx2(const void* numbers, size_t count, Bits exponent_one) {
  return AllFiniteBody(numbers, count, exponent_one);
}
template <typename Bits>
PAWL_TARGET_AVX512 bool AllFiniteAvx512(const void* numbers, size_t count, Bits exponent_one) {
  return AllFiniteBody(numbers, count, exponent_one);
}

template <typename Bits>
bool AllFiniteBy(Isa isa, const void* numbers, size_t count, Bits exponent_one) {
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
      return AllFiniteAvx2(numbers, count, exponent_one);
    case Isa::kAvx512:
      return AllFiniteAvx512(numbers, count, exponent_one);
  }
  return AllFinitePortable(numbers, count, exponent_one);
}

Isa Best() {
  static const Isa isa = BestIsa();
  return isa;
}

}  // namespace

bool AllFinite(const void* floats, size_t count, Isa isa) {
  return AllFiniteBy(isa, floats, count, uint32_t{1} << 23);
}

bool AllFinite(const void* floats, size_t count) { return AllFinite(floats, count, Best()); }

bool AllHalvesFinite(const void* halves, size_t count, int fraction_bits, Isa isa) {
  return AllFiniteBy(isa, halves, count, static_cast<uint16_t>(1u << fraction_bits));
}

bool AllHalvesFinite(const void* halves, size_t count, int fraction_bits) {
  return AllHalvesFinite(halves, count, fraction_bits, Best());
}

}  // namespace pawl
