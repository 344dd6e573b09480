// Numbers as they travel, in one of the types of proto/types.proto, from and to floats.
#ifndef PAWL_CLIENT_LIB_BASE_ELEMENTS_H_
#define PAWL_CLIENT_LIB_BASE_ELEMENTS_H_

#include <cstddef>

#include "proto/types.pb.h"

namespace pawl {

// FLOAT32, which unspecified means, BFLOAT16 or FLOAT16; not a number that a later version may give a meaning.
bool IsElementType(ElementType type);

// Of one number. REQUIRES: IsElementType.
inline size_t ElementBytes(ElementType type) { return type == BFLOAT16 || type == FLOAT16 ? 2 : 4; }

// All of the functions below: at any alignment; the ranges do not overlap; client_lib/base/half.h says how numbers are
// rounded. The bits do not depend on the machine. REQUIRES: IsElementType(type).

// `to` holds count * ElementBytes(type).
void EncodeElements(ElementType type, const void* floats, size_t count, void* to);
void DecodeElements(ElementType type, const void* from, size_t count, void* floats);
// What comes back of numbers that were encoded and decoded.
void RoundElements(ElementType type, const float* from, size_t count, float* to);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_ELEMENTS_H_
