// Reductions of elements in host memory.
#ifndef PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_
#define PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_

#include <cstddef>
#include <cstdint>

#include "worker/collective/collective.h"

namespace pawl {

// output[i] = a[i] (reduction) b[i] for `count` elements; the arguments may be the same memory.
using ReductionFunction = void (*)(void* output, const void* a, const void* b, size_t count);

// Returns null for an unknown type or reduction.
//
// Gloo's own functions lack bfloat16 and leave integer overflow undefined. Here integers wrap
// around. float16 and bfloat16 are widened to float32 and rounded back, to nearest with ties to
// even, after each operation. Minimum and maximum of floating-point numbers are a[i] if either
// argument is NaN.
ReductionFunction FindReductionFunction(CollectiveType type, Reduction reduction);

// Widening is exact. Narrowing rounds to nearest with ties to even, and to infinity beyond the
// range. NaN stays NaN.
float FloatOfFloat16(uint16_t bits);
uint16_t Float16OfFloat(float value);
float FloatOfBfloat16(uint16_t bits);
uint16_t Bfloat16OfFloat(float value);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_
