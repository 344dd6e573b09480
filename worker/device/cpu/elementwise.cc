#include <algorithm>

#include "server/optimizer/math/deterministic_math.h"
#include "worker/device/cpu/stream.h"

namespace pawl {

void CpuStream::Axpy(size_t count, float alpha, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] += alpha * x[i];
}

void CpuStream::AddConstant(size_t count, float value, float* x) {
  for (size_t i = 0; i < count; ++i) x[i] += value;
}

void CpuStream::Scale(size_t count, float alpha, float* x) {
  for (size_t i = 0; i < count; ++i) x[i] *= alpha;
}

void CpuStream::Relu(Matrix x) {
  for (size_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    // NaN stays NaN, so that the loss shows it.
    for (size_t c = 0; c < x.columns; ++c) row[c] = row[c] < 0.0f ? 0.0f : row[c];
  }
}

void CpuStream::ReluBackward(ConstMatrix activation, Matrix gradient) {
  for (size_t r = 0; r < gradient.rows; ++r) {
    const float* active = activation.data + r * activation.stride;
    float* row = gradient.data + r * gradient.stride;
    for (size_t c = 0; c < gradient.columns; ++c) row[c] = active[c] > 0.0f ? row[c] : 0.0f;
  }
}

void CpuStream::Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) {
  const bool is_row_factor = b.columns == 1 && out.columns != 1;
  for (size_t r = 0; r < out.rows; ++r) {
    const float* const left = a.data + r * a.stride;
    const float* const right = b.data + r * b.stride;
    float* const to = out.data + r * out.stride;
    if (is_row_factor && write == Write::kReplace) {
      for (size_t c = 0; c < out.columns; ++c) to[c] = left[c] * right[0];
    } else if (is_row_factor) {
      for (size_t c = 0; c < out.columns; ++c) to[c] += left[c] * right[0];
    } else if (write == Write::kReplace) {
      for (size_t c = 0; c < out.columns; ++c) to[c] = left[c] * right[c];
    } else {
      for (size_t c = 0; c < out.columns; ++c) to[c] += left[c] * right[c];
    }
  }
}

void CpuStream::RowDots(ConstMatrix a, ConstMatrix b, Matrix out) {
  for (size_t r = 0; r < a.rows; ++r) {
    float sum = 0;
    for (size_t c = 0; c < a.columns; ++c)
      sum += a.data[r * a.stride + c] * b.data[r * b.stride + c];
    out.data[r * out.stride] = sum;
  }
}

void CpuStream::Softmax(ConstMatrix x, Matrix y) {
  for (size_t r = 0; r < x.rows; ++r) {
    const float* const from = x.data + r * x.stride;
    float* const to = y.data + r * y.stride;
    const double largest = *std::max_element(from, from + x.columns);
    double sum = 0;
    for (size_t c = 0; c < x.columns; ++c) sum += DeterministicExp(from[c] - largest);
    for (size_t c = 0; c < x.columns; ++c)
      to[c] = static_cast<float>(DeterministicExp(from[c] - largest) / sum);
  }
}

void CpuStream::ReluBackwardAndSum(ConstMatrix activation, Matrix gradient, float* sums) {
  loops_.relu_backward_and_sum(activation, gradient, sums);
}

}  // namespace pawl
