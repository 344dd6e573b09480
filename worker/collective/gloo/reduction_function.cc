#include "worker/collective/gloo/reduction_function.h"

#include <bit>
#include <type_traits>

namespace pawl {
namespace {

constexpr uint32_t kSign = 0x80000000u;

// The tags say how an element is stored; `Value` is the type of the computation.
template <typename T>
struct Plain {
  using Stored = T;
  // Unsigned integers wrap around. Small integers are computed as int, which is wide enough.
  using Value = std::conditional_t<std::is_floating_point_v<T>, T,
                                   std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;
  static T Load(Stored stored) { return stored; }
  static Stored Store(T value) { return value; }
};

struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static float Load(uint16_t stored) { return FloatOfFloat16(stored); }
  static uint16_t Store(float value) { return Float16OfFloat(value); }
};

struct Bfloat16 {
  using Stored = uint16_t;
  using Value = float;
  static float Load(uint16_t stored) { return FloatOfBfloat16(stored); }
  static uint16_t Store(float value) { return Bfloat16OfFloat(value); }
};

template <typename Element, Reduction kReduction>
void Reduce(void* output, const void* a, const void* b, size_t count) {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  using Loaded = decltype(Element::Load(Stored()));
  Stored* const to = static_cast<Stored*>(output);
  const Stored* const left = static_cast<const Stored*>(a);
  const Stored* const right = static_cast<const Stored*>(b);
  // Input and output are identical or disjoint, so no element depends on another's result.
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < count; ++i) {
    const Loaded x = Element::Load(left[i]);
    const Loaded y = Element::Load(right[i]);
    if constexpr (kReduction == Reduction::kSum) {
      to[i] = Element::Store(static_cast<Loaded>(static_cast<Value>(x) + static_cast<Value>(y)));
    } else if constexpr (kReduction == Reduction::kProduct) {
      to[i] = Element::Store(static_cast<Loaded>(static_cast<Value>(x) * static_cast<Value>(y)));
    } else if constexpr (kReduction == Reduction::kMin) {
      to[i] = Element::Store(y < x ? y : x);
    } else {
      to[i] = Element::Store(x < y ? y : x);
    }
  }
}

template <typename Element>
ReductionFunction Find(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return &Reduce<Element, Reduction::kSum>;
    case Reduction::kProduct:
      return &Reduce<Element, Reduction::kProduct>;
    case Reduction::kMin:
      return &Reduce<Element, Reduction::kMin>;
    case Reduction::kMax:
      return &Reduce<Element, Reduction::kMax>;
  }
  return nullptr;
}

}  // namespace

float FloatOfFloat16(uint16_t bits) {
  // Shift exponent and mantissa into place; a multiplication rebases the exponent and normalizes
  // subnormal numbers.
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  // Infinity and NaN have the highest exponent in every format.
  const uint32_t special = scaled >= 65536.0f ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special |
                              (uint32_t{bits & 0x8000u} << 16));
}

uint16_t Float16OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & kSign;
  const uint32_t magnitude = bits ^ sign;
  uint32_t result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;
  } else if (magnitude >= 0x47800000u) {
    // 2^16 and more.
    result = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: the addition rounds to a multiple of 2^-24, which then is the lowest bit.
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    // Add half of the last place, minus one if that place is even. A carry correctly increments the
    // exponent.
    result = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(result | (sign >> 16));
}

float FloatOfBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t Bfloat16OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & ~kSign) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

ReductionFunction FindReductionFunction(CollectiveType type, Reduction reduction) {
  switch (type) {
    case CollectiveType::kInt8:
      return Find<Plain<int8_t>>(reduction);
    case CollectiveType::kUint8:
      return Find<Plain<uint8_t>>(reduction);
    case CollectiveType::kInt32:
      return Find<Plain<int32_t>>(reduction);
    case CollectiveType::kUint32:
      return Find<Plain<uint32_t>>(reduction);
    case CollectiveType::kInt64:
      return Find<Plain<int64_t>>(reduction);
    case CollectiveType::kUint64:
      return Find<Plain<uint64_t>>(reduction);
    case CollectiveType::kFloat16:
      return Find<Float16>(reduction);
    case CollectiveType::kBfloat16:
      return Find<Bfloat16>(reduction);
    case CollectiveType::kFloat32:
      return Find<Plain<float>>(reduction);
    case CollectiveType::kFloat64:
      return Find<Plain<double>>(reduction);
  }
  return nullptr;
}

}  // namespace pawl
