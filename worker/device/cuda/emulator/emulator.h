// Runs the kernels of worker/device/cuda on the host's processor, so that tests need no GPU:
// defines the CUDA extensions in plain C++. Included before everything else in a file of kernels
// that is compiled for the emulator (see BUILD).
//
// The threads of a block are fibers. Between synchronization points they run one after another in a
// random order determined by the seed, so a missing synchronization shows as a wrong result.
// Effects of a GPU's timing, of memory ordering between blocks and of nvcc do not show.
#ifndef PAWL_WORKER_DEVICE_CUDA_EMULATOR_EMULATOR_H_
#define PAWL_WORKER_DEVICE_CUDA_EMULATOR_EMULATOR_H_

#include <cmath>
#include <cstddef>
#include <functional>

#include "vector_functions.h"
#include "vector_types.h"
#include "worker/device/cuda/kernels/kernels.h"

#undef __shared__
#undef __launch_bounds__
// One block runs at a time.
#define __shared__ static
#define __launch_bounds__(...)
#define PAWL_DYNAMIC_SHARED(name) float* const name = ::pawl::cuda::emulator::SharedFloats()

// The values for the running thread.
inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace pawl::cuda {
namespace emulator {

inline constexpr unsigned kWarpThreads = 32;

// Enqueues a kernel launch. An impossible launch sets the last error, as in CUDA.
void Enqueue(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
             std::function<void()> kernel);

// Runs `kernel` for every thread of the grid.
void Run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);

// For the running thread.
float* SharedFloats();
void WaitForBlock();
void WaitForWarp();
// Where the thread `lane` of the warp leaves a value for the others.
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
