// Are there Inf or NaN values in a gradient?
#ifndef PAWL_SERVER_OPTIMIZER_FINITE_H_
#define PAWL_SERVER_OPTIMIZER_FINITE_H_

#include <cstddef>

#include "server/optimizer/isa.h"

namespace pawl {

// True if none of `count` little-endian floats, at any alignment, is Inf or NaN. Runs at the speed of memory.
bool AllFinite(const void* floats, size_t count);

// The same with chosen instructions, for tests and benchmarks. REQUIRES: this machine has them.
bool AllFinite(const void* floats, size_t count, Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_FINITE_H_
