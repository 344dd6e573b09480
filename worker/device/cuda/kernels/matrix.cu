#include "client_lib/base/half.h"
#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

template <typename V, bool kAdd>
struct CopyOf {
  const V* from;
  size_t from_stride;
  V* to;
  size_t to_stride;
  __device__ void operator()(size_t r, size_t c) const {
    const V value = from[r * from_stride + c];
    V* const at = to + r * to_stride + c;
    *at = kAdd ? Plus(*at, value) : value;
  }
};

template <typename V>
void CopyAs(const Queue& queue, ConstMatrix from, Write write, Matrix to) {
  constexpr size_t kFloats = sizeof(V) / sizeof(float);
  const V* const source = reinterpret_cast<const V*>(from.data);
  V* const target = reinterpret_cast<V*>(to.data);
  const size_t columns = to.columns / kFloats, from_stride = from.stride / kFloats,
               to_stride = to.stride / kFloats;
  if (write == Write::kAdd) {
    ForEach(queue, to.rows, columns, CopyOf<V, true>{source, from_stride, target, to_stride});
  } else {
    ForEach(queue, to.rows, columns, CopyOf<V, false>{source, from_stride, target, to_stride});
  }
}

struct ScaleOf {
  float factor;
  float* x;
  size_t stride;
  __device__ void operator()(size_t r, size_t c) const {
    float* const at = x + r * stride + c;
    *at = factor == 0.0f ? 0.0f : factor * *at;
  }
};

template <Factors kFactors>
struct RoundOf {
  const float* x;
  size_t x_stride;
  uint16_t* halves;
  size_t stride;
  __device__ void operator()(size_t r, size_t c) const {
    const float value = x[r * x_stride + c];
    halves[r * stride + c] = kFactors == Factors::kBfloat16 ? Bfloat16Of(value) : Float16Of(value);
  }
};

template <typename V>
struct BiasOf {
  const V* bias;
  V* x;
  size_t stride;
  __device__ void operator()(size_t r, size_t c) const {
    V* const at = x + r * stride + c;
    *at = Plus(*at, bias[c]);
  }
};

// A block sums rows_in_part rows of up to blockDim.x columns: each thread every blockDim.y-th row,
// then pairs of threads, halving their number.
__global__ void __launch_bounds__(kThreads)
    SumColumnsKernel(const float* x, size_t rows, size_t columns, size_t stride,
                     size_t rows_in_part, float* parts) {
  __shared__ float sums[kThreads];
  const size_t c = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t begin = blockIdx.y * rows_in_part;
  const size_t end = begin + rows_in_part < rows ? begin + rows_in_part : rows;
  float sum = 0;
  if (c < columns) {
#pragma unroll 4
    for (size_t r = begin + threadIdx.y; r < end; r += blockDim.y) sum += x[r * stride + c];
  }
  const unsigned at = threadIdx.y * blockDim.x + threadIdx.x;
  sums[at] = sum;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) sums[at] += sums[at + half * blockDim.x];
  }
  if (threadIdx.y == 0 && c < columns) parts[blockIdx.y * columns + c] = sums[at];
}

// At most this many parts, which one block then sums.
constexpr size_t kMaxParts = 1024;
constexpr size_t kMinRowsInPart = 128;

size_t RowsInPart(size_t rows) { return AtLeast(DivideUp(rows, kMaxParts), kMinRowsInPart); }

void SumParts(const Queue& queue, ConstMatrix x, size_t rows_in_part, float* parts) {
  const unsigned width = PowerOfTwo(x.columns, kWarp);
  const dim3 grid(static_cast<unsigned>(DivideUp(x.columns, width)),
                  static_cast<unsigned>(AtLeast(DivideUp(x.rows, rows_in_part), 1)), 1);
  Launch(queue, grid, dim3(width, kThreads / width, 1), 0, SumColumnsKernel, x.data, x.rows,
         x.columns, x.stride, rows_in_part, parts);
}

}  // namespace

void CopyRows(const Queue& queue, ConstMatrix from, Write write, Matrix to) {
  if (to.columns % 4 == 0 && IsAligned(from) && IsAligned(to)) {
    CopyAs<float4>(queue, from, write, to);
  } else {
    CopyAs<float>(queue, from, write, to);
  }
}

void ScaleRows(const Queue& queue, float factor, Matrix x) {
  ForEach(queue, x.rows, x.columns, ScaleOf{factor, x.data, x.stride});
}

void RoundRows(const Queue& queue, Factors factors, ConstMatrix x, uint16_t* halves,
               size_t stride) {
  if (factors == Factors::kBfloat16) {
    ForEach(queue, x.rows, x.columns,
            RoundOf<Factors::kBfloat16>{x.data, x.stride, halves, stride});
  } else {
    ForEach(queue, x.rows, x.columns, RoundOf<Factors::kFloat16>{x.data, x.stride, halves, stride});
  }
}

void AddBias(const Queue& queue, const float* bias, Matrix x) {
  if (x.columns % 4 == 0 && IsAligned(bias) && IsAligned(x)) {
    ForEach(queue, x.rows, x.columns / 4,
            BiasOf<float4>{reinterpret_cast<const float4*>(bias), reinterpret_cast<float4*>(x.data),
                           x.stride / 4});
  } else {
    ForEach(queue, x.rows, x.columns, BiasOf<float>{bias, x.data, x.stride});
  }
}

size_t SumColumnsScratch(size_t rows, size_t columns) {
  const size_t parts = DivideUp(rows, RowsInPart(rows));
  return parts > 1 ? parts * columns : 0;
}

void SumColumns(const Queue& queue, ConstMatrix x, float* scratch, float* sums) {
  if (x.columns == 0) return;
  const size_t rows_in_part = RowsInPart(x.rows);
  const size_t parts = DivideUp(x.rows, rows_in_part);
  if (parts <= 1) return SumParts(queue, x, rows_in_part, sums);
  SumParts(queue, x, rows_in_part, scratch);
  SumParts(queue, ConstMatrix(scratch, parts, x.columns, x.columns), parts, sums);
}

}  // namespace pawl::cuda
