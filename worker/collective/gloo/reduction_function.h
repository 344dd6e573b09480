// Reductions of elements in host memory.
#ifndef PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_
#define PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_

#include <cstddef>

#include "worker/collective/collective.h"

namespace pawl {

// output[i] = a[i] (reduction) b[i] for `count` elements; the arguments may be the same memory.
using ReductionFunction = void (*)(void* output, const void* a, const void* b, size_t count);

// Returns null for an unknown type or reduction. Integers wrap around; Gloo's own functions leave
// their overflow undefined.
ReductionFunction FindReductionFunction(CollectiveType type, Reduction reduction);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GLOO_REDUCTION_FUNCTION_H_
