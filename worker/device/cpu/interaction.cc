#include "worker/device/cpu/stream.h"

namespace pawl {

void CpuStream::SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) {
  loops_.sum_of_dots(vectors, dim, sums, outputs);
}

void CpuStream::SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                                  const float* output_gradients, Write write,
                                  Matrix vectors_gradient) {
  loops_.sum_of_dots_backward(vectors, dim, sums, output_gradients, write, vectors_gradient);
}

void CpuStream::PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) {
  loops_.pairwise_dots(vectors, dim, dots);
}

void CpuStream::PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients,
                                     Write write, Matrix vectors_gradient) {
  loops_.pairwise_dots_backward(vectors, dim, dot_gradients, write, vectors_gradient);
}

}  // namespace pawl
