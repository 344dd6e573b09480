// The parts of CUDA's runtime and of cuBLAS that the back end uses, on the host's processor. Linked
// in their place, together with emulator.h.
//
// The GPU's memory is host memory, but is filled with NaN when it is allocated and again before it
// is freed. Copies are allowed only between it and page-locked memory. A stream does nothing before
// it is queried, and the first answer is always "not ready"; then it executes its work, and the
// work that it waits for in other streams.
#ifndef PAWL_WORKER_DEVICE_CUDA_EMULATOR_RUNTIME_H_
#define PAWL_WORKER_DEVICE_CUDA_EMULATOR_RUNTIME_H_

#include <string>

#include "cuda_runtime_api.h"

namespace pawl::cuda::emulator {

// Two, so that tests detect a thread that uses the wrong one.
inline constexpr int kGpus = 2;
inline constexpr int kProcessors = 2;
inline constexpr size_t kMemoryBytes = size_t{1} << 30;

// Everything below is thread-safe.

// The next call of the function fails with this error, without any effect.
void FailNext(const std::string& function, cudaError_t error);
// While set, no stream ever finishes.
void Hang(bool value);
// The reported compute capability of the GPUs, major * 10 + minor.
void SetCapability(int capability);
// Device memory in use, without page-locked memory.
size_t AllocatedBytes();

}  // namespace pawl::cuda::emulator

#endif  // PAWL_WORKER_DEVICE_CUDA_EMULATOR_RUNTIME_H_
