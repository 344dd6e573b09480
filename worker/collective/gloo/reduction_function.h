// Reductions of elements in the host's memory.
#ifndef PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_
#define PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_

#include <cstddef>
#include <cstdint>

#include "worker/collective/collective.h"

namespace pawl {

// output[i] = a[i] (reduction) b[i] for `count` elements; any of them may be the same memory.
using ReductionFunction = void (*)(void* output, const void* a, const void* b, size_t count);

// Null for a type or reduction that there is not.
//
// Gloo's own know neither bfloat16 nor what happens to an integer that overflows. Here integers
// wrap around; float16 and bfloat16 are widened to float32 and rounded back, to the nearest, ties
// to even, after each operation; minimum and maximum of floating-point numbers are a[i] where
// either is no number.
ReductionFunction FindReductionFunction(CollectiveType type, Reduction reduction);

// Every float16 has a float32 with its value; back it goes to the nearest, ties to even, beyond the
// range to infinity. What is no number stays none.
float FloatOfFloat16(uint16_t bits);
uint16_t Float16OfFloat(float value);
float FloatOfBfloat16(uint16_t bits);
uint16_t Bfloat16OfFloat(float value);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_
