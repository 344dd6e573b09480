// Numbers as they travel, in one of the types of proto/types.proto, from and to floats.
#ifndef PAWL_CLIENT_LIB_BASE_ELEMENTS_H_
#define PAWL_CLIENT_LIB_BASE_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

#include "proto/types.pb.h"

namespace pawl {

// FLOAT32, which unspecified means, BFLOAT16 or FLOAT16; not a number that a later version may give
// a meaning.
bool IsElementType(ElementType type);

// Of one number. REQUIRES: IsElementType.
inline size_t ElementBytes(ElementType type) { return type == BFLOAT16 || type == FLOAT16 ? 2 : 4; }

// All of the functions below: at any alignment; the ranges do not overlap; client_lib/base/half.h
// says how numbers are rounded. The bits do not depend on the machine. REQUIRES:
// IsElementType(type).

// Numbers of FLOAT16 that travel together have an exponent: they are worth 2^exponent times what
// their bits say, so that any floats, if they are not too far from each other, are in its narrow
// range. Within these bounds what is decoded is never rounded, and finite if the bits are. Of the
// other types it is 0.
inline constexpr int32_t kMinElementExponent = -125;
inline constexpr int32_t kMaxElementExponent = 112;
bool IsElementExponent(ElementType type, int32_t exponent);
// For floats of which the largest finite magnitude is `largest`: half of FLOAT16's range is above
// it, for rounding.
int32_t ElementExponentFor(ElementType type, float largest);
// The largest magnitude of those that are finite; 0 if there are none.
float LargestFinite(const void* floats, size_t count);

// `to` holds count * ElementBytes(type). REQUIRES: IsElementExponent(type, exponent).
void EncodeElements(ElementType type, const void* floats, size_t count, void* to,
                    int32_t exponent = 0);
void DecodeElements(ElementType type, const void* from, size_t count, void* floats,
                    int32_t exponent = 0);
// What comes back of numbers that were encoded and decoded.
void RoundElements(ElementType type, const float* from, size_t count, float* to);

// The same as they are on machines without AVX2, for tests.
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
