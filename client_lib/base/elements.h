// Converts floats to and from the element types of proto/types.proto, in which they travel.
#ifndef PAWL_CLIENT_LIB_BASE_ELEMENTS_H_
#define PAWL_CLIENT_LIB_BASE_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

#include "proto/types.pb.h"

namespace pawl {

// Whether `type` is FLOAT32, BFLOAT16, FLOAT16, or unspecified, which means FLOAT32. False for
// values that a later version may define.
bool IsElementType(ElementType type);

// The size of one element. REQUIRES: IsElementType(type).
inline size_t ElementBytes(ElementType type) { return type == BFLOAT16 || type == FLOAT16 ? 2 : 4; }

// The functions below accept any alignment. The ranges must not overlap. client_lib/base/half.h
// defines the rounding. The results do not depend on the machine. REQUIRES: IsElementType(type).

// FLOAT16 elements that travel together share an exponent: their value is 2^exponent times what
// their bits say. It shifts floats of similar magnitude into FLOAT16's narrow range. Within these
// bounds decoding is exact, and finite bits decode to finite floats. The exponent of other types is
// 0.
inline constexpr int32_t kMinElementExponent = -125;
inline constexpr int32_t kMaxElementExponent = 112;
bool IsElementExponent(ElementType type, int32_t exponent);
// The exponent for floats whose largest finite magnitude is `largest`. It leaves the upper half of
// FLOAT16's range free for rounding.
int32_t ElementExponentFor(ElementType type, float largest);
// The largest finite magnitude; 0 if there is none.
float LargestFinite(const void* floats, size_t count);

// `to` holds count * ElementBytes(type). REQUIRES: IsElementExponent(type, exponent).
void EncodeElements(ElementType type, const void* floats, size_t count, void* to,
                    int32_t exponent = 0);
void DecodeElements(ElementType type, const void* from, size_t count, void* floats,
                    int32_t exponent = 0);
// Encodes and decodes.
void RoundElements(ElementType type, const float* from, size_t count, float* to);

// The same functions as on machines without AVX2, for tests.
namespace portable {
float LargestFinite(const void* floats, size_t count);
void EncodeElements(ElementType type, const void* floats, size_t count, void* to,
                    int32_t exponent = 0);
void DecodeElements(ElementType type, const void* from, size_t count, void* floats,
                    int32_t exponent = 0);
void RoundElements(ElementType type, const float* from, size_t count, float* to);
}  // namespace portable

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_ELEMENTS_H_
