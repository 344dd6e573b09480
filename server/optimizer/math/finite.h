// Are there Inf or NaN values in a gradient?
#ifndef PAWL_SERVER_OPTIMIZER_MATH_FINITE_H_
#define PAWL_SERVER_OPTIMIZER_MATH_FINITE_H_

#include <cstddef>

#include "server/optimizer/math/isa.h"

namespace pawl {

// True if none of `count` little-endian floats, at any alignment, is Inf or NaN. Runs at the speed
// of memory.
bool AllFinite(const void* floats, size_t count);

// The same of numbers of 16 bits: of BFLOAT16, whose fraction has 7 bits, or of FLOAT16 with 10
// (client_lib/base/half.h).
bool AllHalvesFinite(const void* halves, size_t count, int fraction_bits);

// The same with chosen instructions, for tests and benchmarks. REQUIRES: this machine has them.
bool AllFinite(const void* floats, size_t count, Isa isa);
bool AllHalvesFinite(const void* halves, size_t count, int fraction_bits, Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MATH_FINITE_H_
