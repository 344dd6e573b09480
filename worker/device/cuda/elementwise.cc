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

void CudaStream::Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) {
  if (!Begin("Multiply")) return;
  cuda::Multiply(queue(), a, b, write, out);
  Launched();
}

void CudaStream::RowDots(ConstMatrix a, ConstMatrix b, Matrix out) {
  if (!Begin("RowDots")) return;
  cuda::RowDots(queue(), a, b, out);
  Launched();
}

void CudaStream::Softmax(ConstMatrix x, Matrix y) {
  if (!Begin("Softmax")) return;
  cuda::Softmax(queue(), x, y);
  Launched();
}

}  // namespace pawl
