#include <algorithm>

#include "worker/device/cpu/stream.h"

namespace pawl {
namespace {

// Sums are split into this many interleaved parts, which the compiler may keep in vector registers
// of any width without changing the result.
constexpr size_t kLanes = 8;

float AddLanes(const float* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

float Dot(const float* __restrict x, const float* __restrict y, size_t count) {
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += x[i + l] * y[i + l];
  }
  for (size_t l = 0; i + l < count; ++l) lanes[l] += x[i + l] * y[i + l];
  return AddLanes(lanes);
}

// y += alpha * x
void AddScaled(size_t count, float alpha, const float* __restrict x, float* __restrict y) {
  for (size_t i = 0; i < count; ++i) y[i] += alpha * x[i];
}

}  // namespace

void CpuStream::SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) {
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* vector = vectors.data + r * vectors.stride;
    float* sum = sums.data + r * sums.stride;
    std::fill_n(sum, dim, 0.0f);
    for (size_t begin = 0; begin < vectors.columns; begin += dim)
      AddScaled(dim, 1.0f, vector + begin, sum);
    outputs[r] += 0.5f * (Dot(sum, sum, dim) - Dot(vector, vector, vectors.columns));
  }
}

void CpuStream::SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                                  const float* output_gradients, Write write,
                                  Matrix vectors_gradient) {
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* vector = vectors.data + r * vectors.stride;
    const float* __restrict sum = sums.data + r * sums.stride;
    float* gradient = vectors_gradient.data + r * vectors_gradient.stride;
    const float output_gradient = output_gradients[r];
    for (size_t begin = 0; begin < vectors.columns; begin += dim) {
      const float* __restrict from = vector + begin;
      float* __restrict to = gradient + begin;
      if (write == Write::kReplace) {
        for (size_t d = 0; d < dim; ++d) to[d] = output_gradient * (sum[d] - from[d]);
      } else {
        for (size_t d = 0; d < dim; ++d) to[d] += output_gradient * (sum[d] - from[d]);
      }
    }
  }
}

void CpuStream::PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) {
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* vector = vectors.data + r * vectors.stride;
    float* dot = dots.data + r * dots.stride;
    for (size_t i = 0; i < vectors.columns; i += dim) {
      for (size_t j = 0; j < i; j += dim) *dot++ = Dot(vector + i, vector + j, dim);
    }
  }
}

void CpuStream::PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients,
                                     Write write, Matrix vectors_gradient) {
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* vector = vectors.data + r * vectors.stride;
    const float* dot_gradient = dot_gradients.data + r * dot_gradients.stride;
    float* gradient = vectors_gradient.data + r * vectors_gradient.stride;
    if (write == Write::kReplace) std::fill_n(gradient, vectors.columns, 0.0f);
    for (size_t i = 0; i < vectors.columns; i += dim) {
      for (size_t j = 0; j < i; j += dim) {
        AddScaled(dim, *dot_gradient, vector + j, gradient + i);
        AddScaled(dim, *dot_gradient, vector + i, gradient + j);
        ++dot_gradient;
      }
    }
  }
}

}  // namespace pawl
