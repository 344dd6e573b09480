#include "tests/harness/reference/reference_optimizer.h"

#include <cmath>

namespace pawl {
namespace {

// Exponentiation by squaring, the order of multiplications that the servers specify.
double Power(double base, uint64_t n) {
  double result = 1.0;
  while (n > 0) {
    if (n % 2 == 1) result *= base;
    base *= base;
    n /= 2;
  }
  return result;
}

float BaseRate(const Optimizer& spec) {
  if (spec.has_sgd()) return spec.sgd().learning_rate();
  if (spec.has_adagrad()) return spec.adagrad().learning_rate();
  return spec.adam().learning_rate();
}

}  // namespace

absl::StatusOr<ReferenceOptimizer> ReferenceOptimizer::Create(const Optimizer& spec) {
  if (!spec.has_sgd() && !spec.has_adagrad() && !spec.has_adam()) {
    return absl::UnimplementedError("the reference implements only sgd, adagrad and adam");
  }
  if (spec.clip_norm() != 0.0f) return absl::UnimplementedError("the reference has no clip_norm");
  const LearningRateSchedule& schedule = spec.schedule();
  if (schedule.has_cosine() || schedule.has_polynomial() || schedule.has_cosine_restarts())
    return absl::UnimplementedError("the reference has no such schedule");
  return ReferenceOptimizer(spec);
}

void ReferenceOptimizer::Begin(ReferenceRow& row) const {
  const size_t width = row.weights.size();
  if (spec_.has_adagrad()) {
    row.first.assign(width, spec_.adagrad().has_initial_accumulator()
                                ? spec_.adagrad().initial_accumulator()
                                : 0.0f);
  }
  if (spec_.has_adam()) {
    row.first.assign(width, 0.0f);
    row.second.assign(width, 0.0f);
  }
}

float ReferenceOptimizer::Rate(uint64_t step) const {
  const LearningRateSchedule& schedule = spec_.schedule();
  double rate = BaseRate(spec_);
  if (step + 1 < schedule.warmup_steps()) {
    rate *= static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps());
  }
  if (schedule.has_step())
    rate *= Power(schedule.step().gamma(), step / schedule.step().every_steps());
  return static_cast<float>(rate);
}

void ReferenceOptimizer::Apply(uint64_t step, float scale, const std::vector<float>& gradient,
                               ReferenceRow& row) const {
  const float rate = Rate(step);
  ++row.updates;
  // Adam's bias corrections, in double precision.
  const Optimizer::Adam& adam = spec_.adam();
  const float beta1 = adam.has_beta1() ? adam.beta1() : 0.9f;
  const float beta2 = adam.has_beta2() ? adam.beta2() : 0.999f;
  const float adam_epsilon = adam.has_epsilon() ? adam.epsilon() : 1e-8f;
  const auto corrected_rate =
      static_cast<float>(static_cast<double>(rate) * (1.0 / (1.0 - Power(beta1, row.updates))));
  const auto inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - Power(beta2, row.updates)));
  const float adagrad_epsilon = spec_.adagrad().has_epsilon() ? spec_.adagrad().epsilon() : 1e-10f;

  for (size_t i = 0; i < row.weights.size(); ++i) {
    float& w = row.weights[i];
    float g = gradient[i] * scale;
    if (spec_.clip_value() != 0.0f) {
      if (g < -spec_.clip_value()) g = -spec_.clip_value();
      if (g > spec_.clip_value()) g = spec_.clip_value();
    }
    if (spec_.l1() != 0.0f || spec_.l2() != 0.0f || spec_.weight_decay() != 0.0f) {
      const float sign = w > 0.0f ? 1.0f : (w < 0.0f ? -1.0f : 0.0f);
      g = g + (spec_.l2() * w + spec_.l1() * sign);
      w = w * static_cast<float>(1.0 - static_cast<double>(rate) *
                                           static_cast<double>(spec_.weight_decay()));
    }
    if (spec_.has_sgd()) {
      w = w - rate * g;
    } else if (spec_.has_adagrad()) {
      row.first[i] = row.first[i] + g * g;
      w = w - (rate * g) / (std::sqrt(row.first[i]) + adagrad_epsilon);
    } else {
      row.first[i] = beta1 * row.first[i] + (1.0f - beta1) * g;
      row.second[i] = beta2 * row.second[i] + (1.0f - beta2) * (g * g);
      w = w - (corrected_rate * row.first[i]) /
                  (std::sqrt(row.second[i]) * inverse_root + adam_epsilon);
    }
  }
}

}  // namespace pawl
