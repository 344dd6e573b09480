#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

// A row of up to 32 threads for each row of the matrix: thread x has the x-th float (or group of
// four) of the vectors, and every blockDim.x-th after it. Threads without a row take part in the
// sums over lanes.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    SumOfDotsKernel(size_t rows, uint32_t count, uint32_t dim, const V* __restrict__ vectors,
                    size_t stride, V* __restrict__ sums, size_t sums_stride,
                    float* __restrict__ outputs) {
  for (size_t first = size_t{blockIdx.x} * blockDim.y; first < rows;
       first += size_t{gridDim.x} * blockDim.y) {
    const size_t r = first + threadIdx.y;
    const bool has_row = r < rows;
    float of_sums = 0, of_vectors = 0;
    for (uint32_t d = threadIdx.x; has_row && d < dim; d += blockDim.x) {
      const V* const from = vectors + r * stride + d;
      V sum = Zeroed(static_cast<V*>(nullptr));
#pragma unroll 4
      for (uint32_t i = 0; i < count; ++i) {
        const V value = from[size_t{i} * dim];
        sum = Plus(sum, value);
        of_vectors += Square(value);
      }
      sums[r * sums_stride + d] = sum;
      of_sums += Square(sum);
    }
    of_sums = SumOverLanes(of_sums, blockDim.x);
    of_vectors = SumOverLanes(of_vectors, blockDim.x);
    if (has_row && threadIdx.x == 0) outputs[r] += 0.5f * (of_sums - of_vectors);
  }
}

template <typename V, bool kAdd>
struct SumOfDotsBackwardOf {
  uint32_t dim;
  const V* vectors;
  size_t stride;
  const V* sums;
  size_t sums_stride;
  const float* output_gradients;
  V* gradient;
  size_t gradient_stride;
  __device__ void operator()(size_t r, size_t c) const {
    const V others =
        Minus(sums[r * sums_stride + static_cast<uint32_t>(c) % dim], vectors[r * stride + c]);
    const V value = Times(output_gradients[r], others);
    V* const at = gradient + r * gradient_stride + c;
    *at = kAdd ? Plus(*at, value) : value;
  }
};

template <typename V>
void SumOfDotsBackwardAs(const Queue& queue, ConstMatrix vectors, size_t dim, ConstMatrix sums,
                         const float* output_gradients, Write write, Matrix vectors_gradient) {
  constexpr size_t kFloats = sizeof(V) / sizeof(float);
  const auto launch = [&](auto f) { ForEach(queue, vectors.rows, vectors.columns / kFloats, f); };
  const auto vector_data = reinterpret_cast<const V*>(vectors.data);
  const auto sum_data = reinterpret_cast<const V*>(sums.data);
  const auto gradient = reinterpret_cast<V*>(vectors_gradient.data);
  const auto floats = static_cast<uint32_t>(dim / kFloats);
  if (write == Write::kAdd) {
    launch(SumOfDotsBackwardOf<V, true>{floats, vector_data, vectors.stride / kFloats, sum_data,
                                        sums.stride / kFloats, output_gradients, gradient,
                                        vectors_gradient.stride / kFloats});
  } else {
    launch(SumOfDotsBackwardOf<V, false>{floats, vector_data, vectors.stride / kFloats, sum_data,
                                         sums.stride / kFloats, output_gradients, gradient,
                                         vectors_gradient.stride / kFloats});
  }
}

// Shared memory that a block's warps may use without opting in to more.
constexpr size_t kSharedBytes = 48 * 1024;
constexpr unsigned kMaxWarps = 4;

// The number of warps of a block that each need this many bytes; 0 if a single one needs too much.
unsigned WarpsOf(size_t bytes_of_warp) {
  return static_cast<unsigned>(AtMost(kSharedBytes / bytes_of_warp, kMaxWarps));
}

// Floats of each vector that a warp of PairwiseDots keeps at a time; the rows have one more, so
// that adjacent vectors use different banks of shared memory.
constexpr uint32_t kChunk = 32;
constexpr uint32_t kPaddedChunk = kChunk + 1;
// A thread computes the dot products of this many vectors with this many others, so that products
// share reads.
constexpr uint32_t kSide = 4;

__host__ __device__ inline uint32_t Triangle(uint32_t n) { return n * (n + 1) / 2; }

// Row and column of square number `square` of the lower triangle, including its diagonal.
__device__ inline void FindSquare(uint32_t square, uint32_t* row, uint32_t* column) {
  uint32_t r =
      static_cast<uint32_t>((sqrtf(8.0f * static_cast<float>(square) + 1.0f) - 1.0f) * 0.5f);
  while (Triangle(r) > square) --r;
  while (Triangle(r + 1) <= square) ++r;
  *row = r;
  *column = square - Triangle(r);
}

// A warp for each row; a thread for each square of kSide by kSide vectors.
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    PairwiseDotsKernel(size_t rows, uint32_t count, uint32_t dim, const float* __restrict__ vectors,
                       size_t stride, float* __restrict__ dots, size_t dots_stride) {
  PAWL_DYNAMIC_SHARED(shared);
  float* const chunk = shared + size_t{threadIdx.y} * count * kPaddedChunk;
  const uint32_t squares = Triangle((count + kSide - 1) / kSide);
  for (size_t r = size_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows;
       r += size_t{gridDim.x} * blockDim.y) {
    const float* const from = vectors + r * stride;
    for (uint32_t first = 0; first < squares; first += kWarp) {
      const uint32_t square = first + threadIdx.x;
      uint32_t i0 = 0, j0 = 0;
      if (square < squares) {
        FindSquare(square, &i0, &j0);
        i0 *= kSide;
        j0 *= kSide;
      }
      // Positions behind the last vector repeat the last one; their products are not written.
      const float* of_i[kSide];
      const float* of_j[kSide];
#pragma unroll
      for (uint32_t a = 0; a < kSide; ++a) {
        of_i[a] = chunk + (i0 + a < count ? i0 + a : count - 1) * kPaddedChunk;
        of_j[a] = chunk + (j0 + a < count ? j0 + a : count - 1) * kPaddedChunk;
      }
      float sums[kSide][kSide] = {};
      for (uint32_t d0 = 0; d0 < dim; d0 += kChunk) {
        const uint32_t length = dim - d0 < kChunk ? dim - d0 : kChunk;
        __syncwarp();
        if (length == kChunk) {
          for (uint32_t v = 0; v < count; ++v) {
            chunk[v * kPaddedChunk + threadIdx.x] = from[size_t{v} * dim + d0 + threadIdx.x];
          }
        } else {
          for (uint32_t at = threadIdx.x; at < count * length; at += kWarp) {
            const uint32_t v = at / length, d = at - v * length;
            chunk[v * kPaddedChunk + d] = from[size_t{v} * dim + d0 + d];
          }
        }
        __syncwarp();
        for (uint32_t d = 0; d < length; ++d) {
          float x[kSide], y[kSide];
#pragma unroll
          for (uint32_t a = 0; a < kSide; ++a) {
            x[a] = of_i[a][d];
            y[a] = of_j[a][d];
          }
#pragma unroll
          for (uint32_t a = 0; a < kSide; ++a) {
#pragma unroll
            for (uint32_t b = 0; b < kSide; ++b) sums[a][b] = fmaf(x[a], y[b], sums[a][b]);
          }
        }
      }
      // If one pass computes all products, they are gathered first and written contiguously.
      const bool is_gathered = squares <= kWarp;
      float* const to = is_gathered ? chunk : dots + r * dots_stride;
      if (is_gathered) __syncwarp();
#pragma unroll
      for (uint32_t a = 0; a < kSide; ++a) {
        const uint32_t i = i0 + a;
#pragma unroll
        for (uint32_t b = 0; b < kSide; ++b) {
          const uint32_t j = j0 + b;
          if (square < squares && i < count && j < i) to[i * (i - 1) / 2 + j] = sums[a][b];
        }
      }
      if (!is_gathered) continue;
      __syncwarp();
      for (uint32_t pair = threadIdx.x; pair < count * (count - 1) / 2; pair += kWarp) {
        dots[r * dots_stride + pair] = chunk[pair];
      }
    }
  }
}

// For vectors that exceed shared memory: a thread for each product.
struct PairwiseDotsOf {
  uint32_t dim;
  const float* vectors;
  size_t stride;
  float* dots;
  size_t dots_stride;
  __device__ void operator()(size_t r, size_t pair) const {
    uint32_t i, j;
    // The triangle without its diagonal is the one of one vector fewer with its diagonal.
    FindSquare(static_cast<uint32_t>(pair), &i, &j);
    const float* const x = vectors + r * stride + size_t{i + 1} * dim;
    const float* const y = vectors + r * stride + size_t{j} * dim;
    float sum = 0;
    for (uint32_t d = 0; d < dim; ++d) sum = fmaf(x[d], y[d], sum);
    dots[r * dots_stride + pair] = sum;
  }
};

// Vectors whose gradients a thread of PairwiseDotsBackward sums together.
constexpr uint32_t kGroup = 8;

// Floats that a warp keeps: a chunk of the vectors, as wide as the warp's threads across, and the
// products' gradients as a full symmetric matrix with a zero diagonal, its rows padded to a
// multiple of kGroup.
__host__ __device__ inline size_t BackwardFloats(uint32_t count, uint32_t across) {
  const size_t padded = (count + kGroup - 1) / kGroup * kGroup;
  // Both start at multiples of 16 bytes.
  return padded * count + (size_t{count} * across + 3) / 4 * 4;
}

// A warp for each row: `across` threads over the vectors' elements, the others over groups of
// vectors.
template <bool kAdd>
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    PairwiseDotsBackwardKernel(size_t rows, uint32_t count, uint32_t dim, uint32_t across,
                               const float* __restrict__ vectors, size_t stride,
                               const float* __restrict__ dot_gradients, size_t dots_stride,
                               float* __restrict__ gradient, size_t gradient_stride) {
  PAWL_DYNAMIC_SHARED(shared);
  const uint32_t padded = (count + kGroup - 1) / kGroup * kGroup;
  float* const weights = shared + size_t{threadIdx.y} * BackwardFloats(count, across);
  float* const chunk = weights + size_t{padded} * count;
  const uint32_t x = threadIdx.x & (across - 1);
  const uint32_t first_group = threadIdx.x / across * kGroup;
  const uint32_t group_step = kWarp / across * kGroup;
  for (size_t r = size_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows;
       r += size_t{gridDim.x} * blockDim.y) {
    const float* const of_dots = dot_gradients + r * dots_stride;
    __syncwarp();
    for (uint32_t j = 0; j < count; ++j) {
      for (uint32_t i = threadIdx.x; i < padded; i += kWarp) {
        float weight = 0;
        if (i < j) weight = of_dots[j * (j - 1) / 2 + i];
        if (i > j && i < count) weight = of_dots[i * (i - 1) / 2 + j];
        weights[j * padded + i] = weight;
      }
    }
    for (uint32_t d0 = 0; d0 < dim; d0 += across) {
      const uint32_t length = dim - d0 < across ? dim - d0 : across;
      __syncwarp();
      for (uint32_t at = threadIdx.x; at < count * across; at += kWarp) {
        const uint32_t v = at / across;
        chunk[at] = x < length ? vectors[r * stride + size_t{v} * dim + d0 + x] : 0.0f;
      }
      __syncwarp();
      for (uint32_t i0 = first_group; i0 < count; i0 += group_step) {
        float sums[kGroup] = {};
        for (uint32_t j = 0; j < count; ++j) {
          const float value = chunk[j * across + x];
          const float4 low = *reinterpret_cast<const float4*>(weights + j * padded + i0);
          const float4 high = *reinterpret_cast<const float4*>(weights + j * padded + i0 + 4);
          sums[0] = fmaf(low.x, value, sums[0]);
          sums[1] = fmaf(low.y, value, sums[1]);
          sums[2] = fmaf(low.z, value, sums[2]);
          sums[3] = fmaf(low.w, value, sums[3]);
          sums[4] = fmaf(high.x, value, sums[4]);
          sums[5] = fmaf(high.y, value, sums[5]);
          sums[6] = fmaf(high.z, value, sums[6]);
          sums[7] = fmaf(high.w, value, sums[7]);
        }
        if (x >= length) continue;
#pragma unroll
        for (uint32_t a = 0; a < kGroup; ++a) {
          if (i0 + a >= count) break;
          float* const at = gradient + r * gradient_stride + size_t{i0 + a} * dim + d0 + x;
          *at = kAdd ? *at + sums[a] : sums[a];
        }
      }
    }
  }
}

// For vectors that exceed shared memory: a thread for each element of the gradient.
template <bool kAdd>
struct PairwiseDotsBackwardOf {
  uint32_t count;
  uint32_t dim;
  const float* vectors;
  size_t stride;
  const float* dot_gradients;
  size_t dots_stride;
  float* gradient;
  size_t gradient_stride;
  __device__ void operator()(size_t r, size_t c) const {
    const uint32_t i = static_cast<uint32_t>(c) / dim, d = static_cast<uint32_t>(c) - i * dim;
    const float* const of_dots = dot_gradients + r * dots_stride;
    float sum = 0;
    for (uint32_t j = 0; j < i; ++j) {
      sum = fmaf(of_dots[size_t{i} * (i - 1) / 2 + j], vectors[r * stride + size_t{j} * dim + d],
                 sum);
    }
    for (uint32_t j = i + 1; j < count; ++j) {
      sum = fmaf(of_dots[size_t{j} * (j - 1) / 2 + i], vectors[r * stride + size_t{j} * dim + d],
                 sum);
    }
    float* const at = gradient + r * gradient_stride + c;
    *at = kAdd ? *at + sum : sum;
  }
};

template <bool kAdd>
void PairwiseDotsBackwardAs(const Queue& queue, ConstMatrix vectors, uint32_t dim,
                            ConstMatrix dot_gradients, Matrix vectors_gradient) {
  const auto count = static_cast<uint32_t>(vectors.columns / dim);
  const unsigned across = PowerOfTwo(dim, kWarp);
  const size_t bytes = BackwardFloats(count, across) * sizeof(float);
  const unsigned warps = WarpsOf(bytes);
  if (warps == 0) {
    return ForEach(queue, vectors.rows, vectors.columns,
                   PairwiseDotsBackwardOf<kAdd>{count, dim, vectors.data, vectors.stride,
                                                dot_gradients.data, dot_gradients.stride,
                                                vectors_gradient.data, vectors_gradient.stride});
  }
  Launch(queue, dim3(Blocks(queue, vectors.rows, warps)), dim3(kWarp, warps, 1), bytes * warps,
         PairwiseDotsBackwardKernel<kAdd>, vectors.rows, count, dim, across, vectors.data,
         vectors.stride, dot_gradients.data, dot_gradients.stride, vectors_gradient.data,
         vectors_gradient.stride);
}

}  // namespace

void SumOfDots(const Queue& queue, ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) {
  if (vectors.rows == 0 || dim == 0) return;
  const auto count = static_cast<uint32_t>(vectors.columns / dim);
  const bool by_four = dim % 4 == 0 && IsAligned(vectors) && IsAligned(sums);
  const size_t elements = by_four ? dim / 4 : dim;
  const unsigned x = PowerOfTwo(elements, kWarp);
  const dim3 block(x, kThreads / x, 1);
  const dim3 grid(Blocks(queue, vectors.rows, block.y));
  if (by_four) {
    Launch(queue, grid, block, 0, SumOfDotsKernel<float4>, vectors.rows, count,
           static_cast<uint32_t>(elements), reinterpret_cast<const float4*>(vectors.data),
           vectors.stride / 4, reinterpret_cast<float4*>(sums.data), sums.stride / 4, outputs);
  } else {
    Launch(queue, grid, block, 0, SumOfDotsKernel<float>, vectors.rows, count,
           static_cast<uint32_t>(elements), vectors.data, vectors.stride, sums.data, sums.stride,
           outputs);
  }
}

void SumOfDotsBackward(const Queue& queue, ConstMatrix vectors, size_t dim, ConstMatrix sums,
                       const float* output_gradients, Write write, Matrix vectors_gradient) {
  if (dim % 4 == 0 && vectors.columns % 4 == 0 && IsAligned(vectors) && IsAligned(sums) &&
      IsAligned(vectors_gradient)) {
    SumOfDotsBackwardAs<float4>(queue, vectors, dim, sums, output_gradients, write,
                                vectors_gradient);
  } else {
    SumOfDotsBackwardAs<float>(queue, vectors, dim, sums, output_gradients, write,
                               vectors_gradient);
  }
}

void PairwiseDots(const Queue& queue, ConstMatrix vectors, size_t dim, Matrix dots) {
  if (vectors.rows == 0 || dots.columns == 0) return;
  const auto count = static_cast<uint32_t>(vectors.columns / dim);
  const size_t bytes = size_t{count} * kPaddedChunk * sizeof(float);
  const unsigned warps = WarpsOf(bytes);
  if (warps == 0) {
    return ForEach(queue, vectors.rows, dots.columns,
                   PairwiseDotsOf{static_cast<uint32_t>(dim), vectors.data, vectors.stride,
                                  dots.data, dots.stride});
  }
  Launch(queue, dim3(Blocks(queue, vectors.rows, warps)), dim3(kWarp, warps, 1), bytes * warps,
         PairwiseDotsKernel, vectors.rows, count, static_cast<uint32_t>(dim), vectors.data,
         vectors.stride, dots.data, dots.stride);
}

void PairwiseDotsBackward(const Queue& queue, ConstMatrix vectors, size_t dim,
                          ConstMatrix dot_gradients, Write write, Matrix vectors_gradient) {
  if (vectors.rows == 0 || vectors.columns == 0) return;
  const auto width = static_cast<uint32_t>(dim);
  if (write == Write::kAdd) {
    PairwiseDotsBackwardAs<true>(queue, vectors, width, dot_gradients, vectors_gradient);
  } else {
    PairwiseDotsBackwardAs<false>(queue, vectors, width, dot_gradients, vectors_gradient);
  }
}

}  // namespace pawl::cuda
