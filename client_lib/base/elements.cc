#include "client_lib/base/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "client_lib/base/compiler.h"
#include "client_lib/base/half.h"

namespace pawl {
namespace {

// The compiler vectorises these loops, once for every machine and once for those with AVX2.

template <typename T>
PAWL_ALWAYS_INLINE T Load(const void* from, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
PAWL_ALWAYS_INLINE void Store(T value, void* to, size_t i) {
  std::memcpy(static_cast<char*>(to) + i * sizeof(T), &value, sizeof(T));
}

// `scale` is a power of two; only FLOAT16 uses it.
struct Encode {
  PAWL_ALWAYS_INLINE static void Bfloat16(const void* __restrict from, size_t count, float,
                                          void* __restrict to) {
    for (size_t i = 0; i < count; ++i) Store<uint16_t>(Bfloat16Of(Load<float>(from, i)), to, i);
  }
  PAWL_ALWAYS_INLINE static void Float16(const void* __restrict from, size_t count, float scale,
                                         void* __restrict to) {
    for (size_t i = 0; i < count; ++i)
      Store<uint16_t>(Float16Of(Load<float>(from, i) * scale), to, i);
  }
};

struct Decode {
  PAWL_ALWAYS_INLINE static void Bfloat16(const void* __restrict from, size_t count, float,
                                          void* __restrict to) {
    for (size_t i = 0; i < count; ++i)
      Store<float>(FloatOfBfloat16(Load<uint16_t>(from, i)), to, i);
  }
  PAWL_ALWAYS_INLINE static void Float16(const void* __restrict from, size_t count, float scale,
                                         void* __restrict to) {
    for (size_t i = 0; i < count; ++i)
      Store<float>(FloatOfFloat16(Load<uint16_t>(from, i)) * scale, to, i);
  }
};

struct Round {
  PAWL_ALWAYS_INLINE static void Bfloat16(const void* __restrict from, size_t count, float,
                                          void* __restrict to) {
    for (size_t i = 0; i < count; ++i)
      Store<float>(FloatOfBfloat16(Bfloat16Of(Load<float>(from, i))), to, i);
  }
  PAWL_ALWAYS_INLINE static void Float16(const void* __restrict from, size_t count, float,
                                         void* __restrict to) {
    for (size_t i = 0; i < count; ++i)
      Store<float>(FloatOfFloat16(Float16Of(Load<float>(from, i))), to, i);
  }
};

template <typename Operation>
PAWL_ALWAYS_INLINE void DoBody(ElementType type, const void* from, size_t count, float scale,
                               void* to) {
  if (type == BFLOAT16) {
    Operation::Bfloat16(from, count, scale, to);
  } else {
    Operation::Float16(from, count, scale, to);
  }
}

template <typename Operation>
void DoPortable(ElementType type, const void* from, size_t count, float scale, void* to) {
  DoBody<Operation>(type, from, count, scale, to);
}

template <typename Operation>
PAWL_TARGET_AVX2 void DoAvx2(ElementType type, const void* from, size_t count, float scale,
                             void* to) {
  DoBody<Operation>(type, from, count, scale, to);
}

// The bits of magnitudes have the order of the magnitudes.
PAWL_ALWAYS_INLINE int32_t LargestFiniteBody(const void* floats, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t magnitude = Load<int32_t>(floats, i) & 0x7fffffff;
    const int32_t finite = magnitude < 0x7f800000 ? magnitude : 0;
    largest = std::max(largest, finite);
  }
  return largest;
}

int32_t LargestFinitePortable(const void* floats, size_t count) {
  return LargestFiniteBody(floats, count);
}
PAWL_TARGET_AVX2 int32_t LargestFiniteAvx2(const void* floats, size_t count) {
  return LargestFiniteBody(floats, count);
}

bool HasAvx2() {
#if defined(__x86_64__)
  static const bool has_avx2 = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
  }();
  return has_avx2;
#else
  return false;
#endif
}

template <typename Operation>
void Do(bool with_avx2, ElementType type, const void* from, size_t count, int32_t exponent,
        void* to) {
  if (type != BFLOAT16 && type != FLOAT16) {
    if (count > 0) std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const float scale = std::ldexp(1.0f, exponent);
  if (with_avx2) {
    DoAvx2<Operation>(type, from, count, scale, to);
  } else {
    DoPortable<Operation>(type, from, count, scale, to);
  }
}

}  // namespace

bool IsElementType(ElementType type) {
  return type == ELEMENT_TYPE_UNSPECIFIED || type == FLOAT32 || type == BFLOAT16 || type == FLOAT16;
}

bool IsElementExponent(ElementType type, int32_t exponent) {
  return exponent == 0 ||
         (type == FLOAT16 && exponent >= kMinElementExponent && exponent <= kMaxElementExponent);
}

int32_t ElementExponentFor(ElementType type, float largest) {
  if (type != FLOAT16 || largest == 0) return 0;
  // Scales `largest` to [2^14, 2^15); FLOAT16 ends below 2^16.
  return std::clamp(std::ilogb(largest) - 14, kMinElementExponent, kMaxElementExponent);
}

float LargestFinite(const void* floats, size_t count) {
  const int32_t bits =
      HasAvx2() ? LargestFiniteAvx2(floats, count) : LargestFinitePortable(floats, count);
  return FloatOfBits(static_cast<uint32_t>(bits));
}

void EncodeElements(ElementType type, const void* floats, size_t count, void* to,
                    int32_t exponent) {
  Do<Encode>(HasAvx2(), type, floats, count, -exponent, to);
}

void DecodeElements(ElementType type, const void* from, size_t count, void* floats,
                    int32_t exponent) {
  Do<Decode>(HasAvx2(), type, from, count, exponent, floats);
}

void RoundElements(ElementType type, const float* from, size_t count, float* to) {
  Do<Round>(HasAvx2(), type, from, count, 0, to);
}

namespace portable {

float LargestFinite(const void* floats, size_t count) {
  return FloatOfBits(static_cast<uint32_t>(LargestFinitePortable(floats, count)));
}

void EncodeElements(ElementType type, const void* floats, size_t count, void* to,
                    int32_t exponent) {
  Do<Encode>(/*with_avx2=*/false, type, floats, count, -exponent, to);
}

void DecodeElements(ElementType type, const void* from, size_t count, void* floats,
                    int32_t exponent) {
  Do<Decode>(/*with_avx2=*/false, type, from, count, exponent, floats);
}

void RoundElements(ElementType type, const float* from, size_t count, float* to) {
  Do<Round>(/*with_avx2=*/false, type, from, count, 0, to);
}

}  // namespace portable

}  // namespace pawl
