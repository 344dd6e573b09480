#include <algorithm>

#include "server/optimizer/math/deterministic_math.h"
#include "worker/device/cpu/stream.h"

namespace pawl {

void CpuStream::LogisticLoss(size_t samples, const float* logits, const float* labels,
                             const float* weights, float gradient_scale, float* gradients,
                             double* loss_sum) {
  if (weights == nullptr)
    return loops_.logistic_loss(samples, logits, labels, gradient_scale, gradients, loss_sum);
  double sum = 0;
  for (size_t s = 0; s < samples; ++s) {
    double loss = 0;
    loops_.logistic_loss(1, logits + s, labels + s, gradient_scale * weights[s], gradients + s,
                         &loss);
    sum += weights[s] * loss;
  }
  *loss_sum = sum;
}

void CpuStream::SquaredLoss(size_t samples, const float* predictions, const float* labels,
                            const float* weights, float gradient_scale, float* gradients,
                            double* loss_sum) {
  double sum = 0;
  for (size_t s = 0; s < samples; ++s) {
    const double weight = weights == nullptr ? 1 : weights[s];
    const double error = static_cast<double>(predictions[s]) - labels[s];
    sum += weight * (error * error / 2);
    gradients[s] = static_cast<float>(gradient_scale * weight * error);
  }
  *loss_sum = sum;
}

void CpuStream::SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                            float gradient_scale, Matrix gradients, double* loss_sum) {
  double sum = 0;
  for (size_t s = 0; s < logits.rows; ++s) {
    const float* z = logits.data + s * logits.stride;
    float* gradient = gradients.data + s * gradients.stride;
    const size_t label = static_cast<size_t>(labels[s]);
    const double largest = *std::max_element(z, z + logits.columns);
    double normalizer = 0;
    for (size_t c = 0; c < logits.columns; ++c) normalizer += DeterministicExp(z[c] - largest);
    const double weight = weights == nullptr ? 1 : weights[s];
    sum += weight * (DeterministicLog(normalizer) - (z[label] - largest));
    for (size_t c = 0; c < logits.columns; ++c) {
      const double probability = DeterministicExp(z[c] - largest) / normalizer;
      gradient[c] =
          static_cast<float>(gradient_scale * weight * (probability - (c == label ? 1.0 : 0.0)));
    }
  }
  *loss_sum = sum;
}

}  // namespace pawl
