#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/stream.h"

namespace pawl {

void CudaStream::Axpy(size_t count, float alpha, const float* x, float* y) {
  if (!Begin("Axpy")) return;
  cuda::Axpy(queue(), count, alpha, x, y);
  Launched();
}

void CudaStream::AddConstant(size_t count, float value, float* x) {
  if (!Begin("AddConstant")) return;
  cuda::AddConstant(queue(), count, value, x);
  Launched();
}

void CudaStream::Scale(size_t count, float alpha, float* x) {
  if (!Begin("Scale")) return;
  cuda::Scale(queue(), count, alpha, x);
  Launched();
}

void CudaStream::Sigmoid(size_t count, const float* x, float* y) {
  if (!Begin("Sigmoid")) return;
  cuda::Sigmoid(queue(), count, x, y);
  Launched();
}

void CudaStream::Relu(Matrix x) {
  if (!Begin("Relu")) return;
  cuda::Relu(queue(), x);
  Launched();
}

void CudaStream::ReluBackward(ConstMatrix activation, Matrix gradient) {
  if (!Begin("ReluBackward")) return;
  cuda::ReluBackward(queue(), activation, gradient);
  Launched();
}

}  // namespace pawl
