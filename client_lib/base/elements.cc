#include "client_lib/base/elements.h"

#include <cstdint>
#include <cstring>

#include "client_lib/base/half.h"

// The loops are for the compiler to vectorise, once for every machine and once for those with AVX2.
#define PAWL_ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define PAWL_TARGET_AVX2 __attribute__((target("avx2")))
#else
#define PAWL_TARGET_AVX2
#endif

namespace pawl {
namespace {

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

struct Encode {
  template <uint16_t (*kHalfOf)(float), float (*kFloatOf)(uint16_t)>
  PAWL_ALWAYS_INLINE static void Do(const void* __restrict from, size_t count, void* __restrict to) {
    for (size_t i = 0; i < count; ++i) Store<uint16_t>(kHalfOf(Load<float>(from, i)), to, i);
  }
};

struct Decode {
  template <uint16_t (*kHalfOf)(float), float (*kFloatOf)(uint16_t)>
  PAWL_ALWAYS_INLINE static void Do(const void* __restrict from, size_t count, void* __restrict to) {
    for (size_t i = 0; i < count; ++i) Store<float>(kFloatOf(Load<uint16_t>(from, i)), to, i);
  }
};

struct Round {
  template <uint16_t (*kHalfOf)(float), float (*kFloatOf)(uint16_t)>
  PAWL_ALWAYS_INLINE static void Do(const void* __restrict from, size_t count, void* __restrict to) {
    for (size_t i = 0; i < count; ++i) Store<float>(kFloatOf(kHalfOf(Load<float>(from, i))), to, i);
  }
};

template <typename Operation>
PAWL_ALWAYS_INLINE void DoBody(ElementType type, const void* from, size_t count, void* to) {
  if (type == BFLOAT16) {
    Operation::template Do<Bfloat16Of, FloatOfBfloat16>(from, count, to);
  } else {
    Operation::template Do<Float16Of, FloatOfFloat16>(from, count, to);
  }
}

template <typename Operation>
void DoPortable(ElementType type, const void* from, size_t count, void* to) {
  DoBody<Operation>(type, from, count, to);
}

template <typename Operation>
PAWL_TARGET_AVX2 void DoAvx2(ElementType type, const void* from, size_t count, void* to) {
  DoBody<Operation>(type, from, count, to);
}

bool HasAvx2() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

template <typename Operation>
void Do(ElementType type, const void* from, size_t count, void* to) {
  static const bool has_avx2 = HasAvx2();
  if (type != BFLOAT16 && type != FLOAT16) {
    if (count > 0) std::memcpy(to, from, count * sizeof(float));
  } else if (has_avx2) {
    DoAvx2<Operation>(type, from, count, to);
  } else {
    DoPortable<Operation>(type, from, count, to);
  }
}

}  // namespace

bool IsElementType(ElementType type) {
  return type == ELEMENT_TYPE_UNSPECIFIED || type == FLOAT32 || type == BFLOAT16 || type == FLOAT16;
}

void EncodeElements(ElementType type, const void* floats, size_t count, void* to) { Do<Encode>(type, floats, count, to); }

void DecodeElements(ElementType type, const void* from, size_t count, void* floats) {
  Do<Decode>(type, from, count, floats);
}

void RoundElements(ElementType type, const float* from, size_t count, float* to) { Do<Round>(type, from, count, to); }

}  // namespace pawl
