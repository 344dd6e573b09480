#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

// y = f(x, y), four elements at a time if both are aligned.
template <typename F>
__global__ void __launch_bounds__(kThreads)
    MapKernel(size_t fours, size_t count, const float* x, float* y, F f) {
  const size_t thread = size_t{blockIdx.x} * kThreads + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * kThreads;
  const float4* const x4 = reinterpret_cast<const float4*>(x);
  float4* const y4 = reinterpret_cast<float4*>(y);
  for (size_t i = thread; i < fours; i += threads) {
    const float4 from = x4[i];
    float4 to = F::kReadsOutput ? y4[i] : from;
    to.x = f(from.x, to.x);
    to.y = f(from.y, to.y);
    to.z = f(from.z, to.z);
    to.w = f(from.w, to.w);
    y4[i] = to;
  }
  for (size_t i = fours * 4 + thread; i < count; i += threads)
    y[i] = f(x[i], F::kReadsOutput ? y[i] : 0.0f);
}

template <typename F>
void Map(const Queue& queue, size_t count, const float* x, float* y, F f) {
  if (count == 0) return;
  const size_t fours = IsAligned(x) && IsAligned(y) ? count / 4 : 0;
  Launch(queue, dim3(Blocks(queue, fours > 0 ? fours : count, kThreads)), dim3(kThreads), 0,
         MapKernel<F>, fours, count, x, y, f);
}

struct AxpyOf {
  static constexpr bool kReadsOutput = true;
  float alpha;
  __device__ float operator()(float x, float y) const { return y + alpha * x; }
};

struct SumWith {
  static constexpr bool kReadsOutput = false;
  float value;
  __device__ float operator()(float x, float) const { return x + value; }
};

struct ProductWith {
  static constexpr bool kReadsOutput = false;
  float factor;
  __device__ float operator()(float x, float) const { return x * factor; }
};

// NaN stays NaN, so that the loss shows it.
__device__ inline float Positive(float x) { return x < 0.0f ? 0.0f : x; }
__device__ inline float4 Positive(float4 x) {
  return make_float4(Positive(x.x), Positive(x.y), Positive(x.z), Positive(x.w));
}

__device__ inline float Passed(float activation, float gradient) {
  return activation > 0.0f ? gradient : 0.0f;
}
__device__ inline float4 Passed(float4 activation, float4 gradient) {
  return make_float4(Passed(activation.x, gradient.x), Passed(activation.y, gradient.y),
                     Passed(activation.z, gradient.z), Passed(activation.w, gradient.w));
}

template <typename V>
struct ReluOf {
  V* x;
  size_t stride;
  __device__ void operator()(size_t r, size_t c) const {
    V* const at = x + r * stride + c;
    *at = Positive(*at);
  }
};

template <typename V>
struct ReluBackwardOf {
  const V* activation;
  size_t activation_stride;
  V* gradient;
  size_t stride;
  __device__ void operator()(size_t r, size_t c) const {
    V* const at = gradient + r * stride + c;
    *at = Passed(activation[r * activation_stride + c], *at);
  }
};

struct MultiplyOf {
  const float* a;
  size_t a_stride;
  const float* b;
  size_t b_stride;
  size_t b_step;  // 0: one factor for each row
  bool adds;
  float* out;
  size_t stride;
  __device__ void operator()(size_t r, size_t c) const {
    const float product = a[r * a_stride + c] * b[r * b_stride + c * b_step];
    float* const at = out + r * stride + c;
    *at = adds ? *at + product : product;
  }
};

struct RowDotOf {
  ConstMatrix a;
  ConstMatrix b;
  float* out;
  size_t stride;
  __device__ void operator()(size_t, size_t r) const {
    float sum = 0;
    for (size_t c = 0; c < a.columns; ++c)
      sum += a.data[r * a.stride + c] * b.data[r * b.stride + c];
    out[r * stride] = sum;
  }
};

struct SoftmaxOf {
  ConstMatrix x;
  float* y;
  size_t stride;
  __device__ void operator()(size_t, size_t r) const {
    const float* const from = x.data + r * x.stride;
    float largest = from[0];
    for (size_t c = 1; c < x.columns; ++c) largest = fmaxf(largest, from[c]);
    float sum = 0;
    for (size_t c = 0; c < x.columns; ++c) sum += expf(from[c] - largest);
    for (size_t c = 0; c < x.columns; ++c) y[r * stride + c] = expf(from[c] - largest) / sum;
  }
};

}  // namespace

void Multiply(const Queue& queue, ConstMatrix a, ConstMatrix b, Write write, Matrix out) {
  const size_t b_step = b.columns == 1 && out.columns != 1 ? 0 : 1;
  ForEach(queue, out.rows, out.columns,
          MultiplyOf{a.data, a.stride, b.data, b.stride, b_step, write == Write::kAdd, out.data,
                     out.stride});
}

void RowDots(const Queue& queue, ConstMatrix a, ConstMatrix b, Matrix out) {
  ForEach(queue, 1, a.rows, RowDotOf{a, b, out.data, out.stride});
}

void Softmax(const Queue& queue, ConstMatrix x, Matrix y) {
  if (x.columns == 0) return;
  ForEach(queue, 1, x.rows, SoftmaxOf{x, y.data, y.stride});
}

void Axpy(const Queue& queue, size_t count, float alpha, const float* x, float* y) {
  Map(queue, count, x, y, AxpyOf{alpha});
}

void AddConstant(const Queue& queue, size_t count, float value, float* x) {
  Map(queue, count, x, x, SumWith{value});
}

void Scale(const Queue& queue, size_t count, float alpha, float* x) {
  Map(queue, count, x, x, ProductWith{alpha});
}

void Relu(const Queue& queue, Matrix x) {
  if (x.columns % 4 == 0 && IsAligned(x)) {
    ForEach(queue, x.rows, x.columns / 4,
            ReluOf<float4>{reinterpret_cast<float4*>(x.data), x.stride / 4});
  } else {
    ForEach(queue, x.rows, x.columns, ReluOf<float>{x.data, x.stride});
  }
}

void ReluBackward(const Queue& queue, ConstMatrix activation, Matrix gradient) {
  if (gradient.columns % 4 == 0 && IsAligned(activation) && IsAligned(gradient)) {
    ForEach(queue, gradient.rows, gradient.columns / 4,
            ReluBackwardOf<float4>{reinterpret_cast<const float4*>(activation.data),
                                   activation.stride / 4, reinterpret_cast<float4*>(gradient.data),
                                   gradient.stride / 4});
  } else {
    ForEach(
        queue, gradient.rows, gradient.columns,
        ReluBackwardOf<float>{activation.data, activation.stride, gradient.data, gradient.stride});
  }
}

}  // namespace pawl::cuda
