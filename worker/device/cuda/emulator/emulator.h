// Runs the kernels of worker/device/cuda on the processor, so that tests need no GPU: what their
// files say of CUDA, as plain C++. Included before everything else in a file of kernels that is
// compiled for the emulator (see BUILD).
//
// The threads of a block are fibers. Between two places where they wait for each other they run one
// after the other, in a random order that the seed decides: a place where they ought to wait and do
// not shows as a wrong result. What depends on a GPU's timing, on its memory's ordering between
// blocks or on nvcc does not show.
#ifndef PAWL_WORKER_DEVICE_CUDA_EMULATOR_EMULATOR_H_
#define PAWL_WORKER_DEVICE_CUDA_EMULATOR_EMULATOR_H_

#include <cmath>
#include <cstddef>
#include <functional>

#include "vector_functions.h"
#include "vector_types.h"
#include "worker/device/cuda/kernels.h"

#undef __shared__
#undef __launch_bounds__
// One block runs at a time.
#define __shared__ static
#define __launch_bounds__(...)
#define PAWL_DYNAMIC_SHARED(name) float* const name = ::pawl::cuda::emulator::SharedFloats()

// Set for the thread that runs.
inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace pawl::cuda {
namespace emulator {

inline constexpr unsigned kWarpThreads = 32;

// Puts a kernel's launch into the stream. An impossible one becomes the last error, as CUDA's do.
void Enqueue(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
             std::function<void()> kernel);

// Runs `kernel` for every thread of the grid.
void Run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);

// For the thread that runs.
float* SharedFloats();
void WaitForBlock();
void WaitForWarp();
// Where the thread of this number in the warp leaves what the others read.
double* WarpSlot(unsigned lane);
unsigned Lane();

}  // namespace emulator

template <typename... Parameters, typename... Arguments>
void Launch(const Queue& queue, dim3 grid, dim3 block, size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments... arguments) {
  emulator::Enqueue(queue.stream, grid, block, shared_bytes, [=] { kernel(arguments...); });
}

}  // namespace pawl::cuda

inline void __syncthreads() { pawl::cuda::emulator::WaitForBlock(); }
inline void __syncwarp() { pawl::cuda::emulator::WaitForWarp(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned distance) {
  namespace emulator = pawl::cuda::emulator;
  static_assert(sizeof(T) <= sizeof(double));
  const unsigned lane = emulator::Lane();
  *reinterpret_cast<T*>(emulator::WarpSlot(lane)) = value;
  emulator::WaitForWarp();
  const T result = *reinterpret_cast<T*>(emulator::WarpSlot(lane ^ distance));
  emulator::WaitForWarp();
  return result;
}

#endif  // PAWL_WORKER_DEVICE_CUDA_EMULATOR_EMULATOR_H_
