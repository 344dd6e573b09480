#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/stream.h"

namespace pawl {

void CudaStream::LogisticLoss(size_t samples, const float* logits, const float* labels,
                              const float* weights, float gradient_scale, float* gradients,
                              double* loss_sum) {
  if (!Begin("LogisticLoss")) return;
  const Scratch scratch(*this, cuda::LossScratch(samples) * sizeof(double));
  if (!scratch.ok()) return;
  cuda::LogisticLoss(queue(), samples, logits, labels, weights, gradient_scale, gradients,
                     static_cast<double*>(scratch.data()), loss_sum);
  Launched();
}

void CudaStream::SquaredLoss(size_t samples, const float* predictions, const float* labels,
                             const float* weights, float gradient_scale, float* gradients,
                             double* loss_sum) {
  if (!Begin("SquaredLoss")) return;
  const Scratch scratch(*this, cuda::LossScratch(samples) * sizeof(double));
  if (!scratch.ok()) return;
  cuda::SquaredLoss(queue(), samples, predictions, labels, weights, gradient_scale, gradients,
                    static_cast<double*>(scratch.data()), loss_sum);
  Launched();
}

void CudaStream::SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                             float gradient_scale, Matrix gradients, double* loss_sum) {
  if (!Begin("SoftmaxLoss")) return;
  const Scratch scratch(*this, cuda::LossScratch(logits.rows) * sizeof(double));
  if (!scratch.ok()) return;
  cuda::SoftmaxLoss(queue(), logits, labels, weights, gradient_scale, gradients,
                    static_cast<double*>(scratch.data()), loss_sum);
  Launched();
}

}  // namespace pawl
