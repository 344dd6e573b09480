#include "server/optimizer/testing/scalar_reference.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "server/optimizer/learning_rate.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

double SumOfSquares(const std::vector<float>& values) {
  double lanes[16] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    lanes[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (const size_t distance : {8, 4, 2, 1}) {
    for (size_t j = 0; j < distance; ++j) lanes[j] += lanes[j + distance];
  }
  return lanes[0];
}

void AdamStep(float rate, uint64_t prior_updates, float beta1, float beta2, float epsilon, float g,
              float& w, float& m, float& v) {
  const double c1 = 1.0 / (1.0 - DeterministicPower(beta1, prior_updates + 1));
  const double c2 = 1.0 / std::sqrt(1.0 - DeterministicPower(beta2, prior_updates + 1));
  const float corrected_rate = static_cast<float>(static_cast<double>(rate) * c1);
  const float inverse_root = static_cast<float>(c2);
  m = beta1 * m + (1.0f - beta1) * g;
  v = beta2 * v + (1.0f - beta2) * (g * g);
  w = w - (corrected_rate * m) / (std::sqrt(v) * inverse_root + epsilon);
}

}  // namespace

void ScalarApply(const Optimizer& spec, const UpdatePosition& position, float scale,
                 const void* gradient, size_t width, size_t begin, size_t count, float* weights,
                 float* slots) {
  if (spec.has_assign()) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(&weights[begin + i], static_cast<const char*>(gradient) + i * sizeof(float),
                  sizeof(float));
    }
    return;
  }
  const float rate = LearningRate(BaseRateOf(spec), spec.schedule()).At(position.step);

  std::vector<float> gradients(count);
  if (count > 0) std::memcpy(gradients.data(), gradient, count * sizeof(float));
  for (float& g : gradients) {
    g = g * scale;
    if (spec.clip_value() > 0.0f) {
      if (g < -spec.clip_value()) g = -spec.clip_value();
      if (g > spec.clip_value()) g = spec.clip_value();
    }
  }
  if (spec.clip_norm() > 0.0f) {
    const double norm = std::sqrt(SumOfSquares(gradients));
    if (norm > spec.clip_norm()) {
      const float factor = static_cast<float>(static_cast<double>(spec.clip_norm()) / norm);
      for (float& g : gradients) g = g * factor;
    }
  }
  if (spec.l1() != 0.0f || spec.l2() != 0.0f || spec.weight_decay() != 0.0f) {
    for (size_t i = 0; i < count; ++i) {
      const float w = weights[begin + i];
      const float sign = w > 0.0f ? 1.0f : w < 0.0f ? -1.0f : 0.0f;
      gradients[i] = gradients[i] + (spec.l2() * w + spec.l1() * sign);
    }
  }

  float row_factor = 0.0f;
  if (spec.has_rowwise_adagrad()) {
    const Optimizer::RowWiseAdagrad& own = spec.rowwise_adagrad();
    const float mean = static_cast<float>(SumOfSquares(gradients) / static_cast<double>(width));
    slots[0] = slots[0] + mean;
    row_factor = rate / (std::sqrt(slots[0]) + (own.has_epsilon() ? own.epsilon() : 1e-10f));
  }

  for (size_t i = 0; i < count; ++i) {
    const float g = gradients[i];
    float& w = weights[begin + i];
    if (spec.weight_decay() != 0.0f)
      w = w * static_cast<float>(1.0 - static_cast<double>(rate) *
                                           static_cast<double>(spec.weight_decay()));
    switch (spec.kind_case()) {
      case Optimizer::kSgd:
        w = w - rate * g;
        break;
      case Optimizer::kMomentum: {
        const float momentum = spec.momentum().has_momentum() ? spec.momentum().momentum() : 0.9f;
        float& v = slots[begin + i];
        v = momentum * v + g;
        if (spec.momentum().nesterov()) {
          w = w - rate * (g + momentum * v);
        } else {
          w = w - rate * v;
        }
        break;
      }
      case Optimizer::kAdagrad: {
        float& a = slots[begin + i];
        a = a + g * g;
        w = w - (rate * g) / (std::sqrt(a) +
                              (spec.adagrad().has_epsilon() ? spec.adagrad().epsilon() : 1e-10f));
        break;
      }
      case Optimizer::kRowwiseAdagrad:
        w = w - row_factor * g;
        break;
      case Optimizer::kRmsprop: {
        const float rho = spec.rmsprop().has_rho() ? spec.rmsprop().rho() : 0.99f;
        float& a = slots[begin + i];
        a = rho * a + (1.0f - rho) * (g * g);
        w = w - (rate * g) / (std::sqrt(a) +
                              (spec.rmsprop().has_epsilon() ? spec.rmsprop().epsilon() : 1e-8f));
        break;
      }
      case Optimizer::kAdam: {
        const Optimizer::Adam& own = spec.adam();
        AdamStep(rate, position.prior_updates, own.has_beta1() ? own.beta1() : 0.9f,
                 own.has_beta2() ? own.beta2() : 0.999f, own.has_epsilon() ? own.epsilon() : 1e-8f,
                 g, w, slots[begin + i], slots[width + begin + i]);
        break;
      }
      case Optimizer::kAdamw: {
        const Optimizer::AdamW& own = spec.adamw();
        const float decay = own.has_weight_decay() ? own.weight_decay() : 0.01f;
        w = w * static_cast<float>(1.0 - static_cast<double>(rate) * static_cast<double>(decay));
        AdamStep(rate, position.prior_updates, own.has_beta1() ? own.beta1() : 0.9f,
                 own.has_beta2() ? own.beta2() : 0.999f, own.has_epsilon() ? own.epsilon() : 1e-8f,
                 g, w, slots[begin + i], slots[width + begin + i]);
        break;
      }
      case Optimizer::kFtrl: {
        if (rate < 1e-30f) break;
        const Optimizer::Ftrl& own = spec.ftrl();
        const float beta = own.has_beta() ? own.beta() : 1.0f;
        float& n = slots[begin + i];
        float& z = slots[width + begin + i];
        const float root = std::sqrt(n);
        n = n + g * g;
        const float new_root = std::sqrt(n);
        const float sigma = (new_root - root) / rate;
        z = z + (g - sigma * w);
        if (std::fabs(z) <= own.l1()) {
          w = 0.0f;
        } else {
          w = ((z < 0.0f ? -own.l1() : own.l1()) - z) / ((beta + new_root) / rate + own.l2());
        }
        break;
      }
      case Optimizer::kAssign:
      case Optimizer::KIND_NOT_SET:
        break;
    }
  }
}

}  // namespace pawl
