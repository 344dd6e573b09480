// Checks for Inf and NaN values in a gradient.
#ifndef PAWL_SERVER_OPTIMIZER_MATH_FINITE_H_
#define PAWL_SERVER_OPTIMIZER_MATH_FINITE_H_

#include <cstddef>

#include "server/optimizer/math/isa.h"

namespace pawl {

// Whether none of `count` little-endian floats, at any alignment, is Inf or NaN. Runs at memory
// speed.
bool AllFinite(const void* floats, size_t count);

// The same for 16-bit numbers: BFLOAT16 with 7 fraction bits, or FLOAT16 with 10
// (client_lib/base/half.h).
bool AllHalvesFinite(const void* halves, size_t count, int fraction_bits);

// The same with the given instructions, for tests and benchmarks. REQUIRES: this machine has them.
bool AllFinite(const void* floats, size_t count, Isa isa);
bool AllHalvesFinite(const void* halves, size_t count, int fraction_bits, Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MATH_FINITE_H_
