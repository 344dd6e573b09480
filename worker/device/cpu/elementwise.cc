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

void CpuStream::Sigmoid(size_t count, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i)
    y[i] = static_cast<float>(1.0 / (1.0 + DeterministicExp(-static_cast<double>(x[i]))));
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

void CpuStream::ReluBackwardAndSum(ConstMatrix activation, Matrix gradient, float* sums) {
  loops_.relu_backward_and_sum(activation, gradient, sums);
}

}  // namespace pawl
