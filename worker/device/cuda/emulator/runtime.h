// What of CUDA's runtime and of cuBLAS the back end uses, on the processor: linked in their place,
// beside emulator.h.
//
// The GPU's memory is the host's, but is full of NaN when it is allocated and again before it is
// freed, and only it may be copied to and from, with page-locked memory at the other end. A stream
// does nothing before it is asked how it stands, and the first answer is always that it is not
// done; then it does what it was given, and what that waits for in other streams.
#ifndef PAWL_WORKER_DEVICE_CUDA_EMULATOR_RUNTIME_H_
#define PAWL_WORKER_DEVICE_CUDA_EMULATOR_RUNTIME_H_

#include <string>

#include "cuda_runtime_api.h"

namespace pawl::cuda::emulator {

// Two, so that a thread that uses the wrong one is found out.
inline constexpr int kGpus = 2;
inline constexpr int kProcessors = 2;
inline constexpr size_t kMemoryBytes = size_t{1} << 30;

// All of the below is thread-safe.

// The next call of the function fails so, without doing anything.
void FailNext(const std::string& function, cudaError_t error);
// While set, no stream ever gets done.
void Hang(bool value);
// What the GPUs are said to be capable of, major * 10 + minor.
void SetCapability(int capability);
// Device memory that is allocated and not freed, page-locked memory not counted.
size_t AllocatedBytes();

}  // namespace pawl::cuda::emulator

#endif  // PAWL_WORKER_DEVICE_CUDA_EMULATOR_RUNTIME_H_
