#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/stream.h"

namespace pawl {

void CudaStream::SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) {
  if (!Begin("SumOfDots")) return;
  cuda::SumOfDots(queue(), vectors, dim, sums, outputs);
  Launched();
}

void CudaStream::SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                                   const float* output_gradients, Write write,
                                   Matrix vectors_gradient) {
  if (!Begin("SumOfDotsBackward")) return;
  cuda::SumOfDotsBackward(queue(), vectors, dim, sums, output_gradients, write, vectors_gradient);
  Launched();
}

void CudaStream::PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) {
  if (!Begin("PairwiseDots")) return;
  cuda::PairwiseDots(queue(), vectors, dim, dots);
  Launched();
}

void CudaStream::PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients,
                                      Write write, Matrix vectors_gradient) {
  if (!Begin("PairwiseDotsBackward")) return;
  cuda::PairwiseDotsBackward(queue(), vectors, dim, dot_gradients, write, vectors_gradient);
  Launched();
}

}  // namespace pawl
