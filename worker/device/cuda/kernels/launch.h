// Shared by the kernels: how threads are mapped to matrices, and arithmetic on one or four floats.
#ifndef PAWL_WORKER_DEVICE_CUDA_KERNELS_LAUNCH_H_
#define PAWL_WORKER_DEVICE_CUDA_KERNELS_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

#include "worker/device/cuda/kernels/kernels.h"

namespace pawl::cuda {

// Threads of a block. Every kernel is compiled for exactly this number.
inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarp = 32;
// Blocks per processor: enough that all processors are busy, and blocks end at different times.
inline constexpr unsigned kBlocksPerProcessor = 16;
// CUDA's limit for the second dimension of a grid.
inline constexpr size_t kMaxGridRows = 65535;

#ifdef __CUDACC__
template <typename... Parameters, typename... Arguments>
void Launch(const Queue& queue, dim3 grid, dim3 block, size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<grid, block, shared_bytes, queue.stream>>>(arguments...);
}

// The shared floats of a block, as many as the launch requested, aligned to 16 bytes.
#define PAWL_DYNAMIC_SHARED(name) extern __shared__ __align__(16) float name[]
#endif

inline size_t DivideUp(size_t dividend, size_t divisor) {
  return (dividend + divisor - 1) / divisor;
}
inline size_t AtMost(size_t value, size_t limit) { return value < limit ? value : limit; }
inline size_t AtLeast(size_t value, size_t limit) { return value < limit ? limit : value; }

// The smallest power of two that is at least `count`, but at most `limit`, which is one too.
inline unsigned PowerOfTwo(size_t count, unsigned limit) {
  unsigned power = 1;
  while (power < count && power < limit) power *= 2;
  return power;
}

// The number of blocks that loop over `units` of work, units_in_block at a time.
inline unsigned Blocks(const Queue& queue, size_t units, size_t units_in_block) {
  return static_cast<unsigned>(AtLeast(
      AtMost(DivideUp(units, units_in_block), size_t{queue.processors} * kBlocksPerProcessor), 1));
}

// Threads over a matrix: adjacent x are adjacent in a row.
struct Layout {
  dim3 grid;
  dim3 block;
};
inline Layout Over(const Queue& queue, size_t rows, size_t columns) {
  const unsigned x = PowerOfTwo(columns, rows < kThreads / kWarp ? kThreads : kWarp);
  const unsigned y = kThreads / x;
  const size_t limit = size_t{queue.processors} * kBlocksPerProcessor;
  const size_t grid_x = AtLeast(AtMost(DivideUp(columns, x), limit), 1);
  const size_t grid_y =
      AtLeast(AtMost(AtMost(DivideUp(rows, y), AtLeast(limit / grid_x, 1)), kMaxGridRows), 1);
  return {dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y), 1), dim3(x, y, 1)};
}

// Whether float4 accesses are possible.
inline bool IsAligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % sizeof(float4) == 0;
}
inline bool IsAligned(const ConstMatrix& x) { return IsAligned(x.data) && x.stride % 4 == 0; }

// Calls f(row, column) for all elements. F is a struct with a __device__ operator().
template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachKernel(size_t rows, size_t columns, F f) {
  for (size_t r = size_t{blockIdx.y} * blockDim.y + threadIdx.y; r < rows;
       r += size_t{gridDim.y} * blockDim.y) {
    for (size_t c = size_t{blockIdx.x} * blockDim.x + threadIdx.x; c < columns;
         c += size_t{gridDim.x} * blockDim.x) {
      f(r, c);
    }
  }
}
template <typename F>
void ForEach(const Queue& queue, size_t rows, size_t columns, F f) {
  if (rows == 0 || columns == 0) return;
  const Layout layout = Over(queue, rows, columns);
  Launch(queue, layout.grid, layout.block, 0, ForEachKernel<F>, rows, columns, f);
}

// Arithmetic on one float or four, for kernels that are written once for both.
__device__ inline float Zeroed(const float*) { return 0; }
__device__ inline float4 Zeroed(const float4*) { return make_float4(0, 0, 0, 0); }
__device__ inline float Plus(float a, float b) { return a + b; }
__device__ inline float4 Plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ inline float Minus(float a, float b) { return a - b; }
__device__ inline float4 Minus(float4 a, float4 b) {
  return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
__device__ inline float Times(float a, float b) { return a * b; }
__device__ inline float4 Times(float a, float4 b) {
  return make_float4(a * b.x, a * b.y, a * b.z, a * b.w);
}
// x . x
__device__ inline float Square(float x) { return x * x; }
__device__ inline float Square(float4 x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}

// The sum over groups of `lanes` adjacent threads of a warp, the same in each of them. All threads
// of the warp call it. REQUIRES: lanes is a power of two, at most kWarp.
template <typename T>
__device__ inline T SumOverLanes(T value, unsigned lanes) {
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

}  // namespace pawl::cuda

#endif  // PAWL_WORKER_DEVICE_CUDA_KERNELS_LAUNCH_H_
