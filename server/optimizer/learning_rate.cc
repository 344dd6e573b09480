#include "server/optimizer/learning_rate.h"

#include <algorithm>

#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

// The half wave from 1 to 0 of a cosine. REQUIRES: step <= period; period > 0.
double HalfCosine(uint64_t step, uint64_t period) {
  const double cosine =
      step == period ? -1.0
                     : DeterministicCosPi(static_cast<double>(step) / static_cast<double>(period));
  return (1.0 + cosine) * 0.5;
}

struct PlaceInPeriod {
  uint64_t step;
  uint64_t period;
};

// Where `step` is in periods of `period`, period * factor, period * factor^2, ... steps. A period
// longer than 2^64 steps counts as the last.
PlaceInPeriod FindPeriod(uint64_t step, uint64_t period, uint64_t factor) {
  if (factor == 1) return {step % period, period};
  while (step >= period) {
    step -= period;
    if (period > UINT64_MAX / factor) return {step, UINT64_MAX};
    period *= factor;
  }
  return {step, period};
}

// REQUIRES: 0 <= x <= 1; power > 0.
double Power(double x, double power) {
  if (power == 1.0 || x == 0.0) return x;
  return DeterministicExp(power * DeterministicLog(x));
}

}  // namespace

float BaseRateOf(const Optimizer& optimizer) {
  switch (optimizer.kind_case()) {
    case Optimizer::kSgd:
      return optimizer.sgd().learning_rate();
    case Optimizer::kMomentum:
      return optimizer.momentum().learning_rate();
    case Optimizer::kAdagrad:
      return optimizer.adagrad().learning_rate();
    case Optimizer::kRowwiseAdagrad:
      return optimizer.rowwise_adagrad().learning_rate();
    case Optimizer::kRmsprop:
      return optimizer.rmsprop().learning_rate();
    case Optimizer::kAdam:
      return optimizer.adam().learning_rate();
    case Optimizer::kAdamw:
      return optimizer.adamw().learning_rate();
    case Optimizer::kFtrl:
      return optimizer.ftrl().learning_rate();
    case Optimizer::kAssign:
    case Optimizer::KIND_NOT_SET:
      return 0.0f;
  }
  return 0.0f;
}

LearningRate::LearningRate(float base, const LearningRateSchedule& schedule)
    : base_(base), warmup_steps_(schedule.warmup_steps()) {
  switch (schedule.kind_case()) {
    case LearningRateSchedule::KIND_NOT_SET:
      kind_ = warmup_steps_ > 1 ? Kind::kConstant : Kind::kFixed;
      break;
    case LearningRateSchedule::kStep:
      kind_ = Kind::kStep;
      period_ = schedule.step().every_steps();
      gamma_ = schedule.step().gamma();
      break;
    case LearningRateSchedule::kCosine:
      kind_ = Kind::kCosine;
      period_ = schedule.cosine().total_steps();
      floor_ = schedule.cosine().floor();
      break;
    case LearningRateSchedule::kPolynomial:
      kind_ = Kind::kPolynomial;
      period_ = schedule.polynomial().total_steps();
      floor_ = schedule.polynomial().floor();
      if (schedule.polynomial().power() != 0) power_ = schedule.polynomial().power();
      break;
    case LearningRateSchedule::kCosineRestarts:
      kind_ = Kind::kCosineRestarts;
      period_ = schedule.cosine_restarts().first_period_steps();
      floor_ = schedule.cosine_restarts().floor();
      if (schedule.cosine_restarts().period_factor() != 0)
        period_factor_ = schedule.cosine_restarts().period_factor();
      break;
  }
}

float LearningRate::Scheduled(uint64_t step, float base) const {
  double rate = base;
  // Avoids t + 1, which could wrap.
  if (warmup_steps_ > 1 && step < warmup_steps_ - 1) {
    rate *= static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  }
  switch (kind_) {
    case Kind::kFixed:
    case Kind::kConstant:
      break;
    case Kind::kStep:
      rate *= DeterministicPower(gamma_, step / period_);
      break;
    case Kind::kCosine:
      rate *= floor_ + (1.0 - floor_) * HalfCosine(std::min(step, period_), period_);
      break;
    case Kind::kPolynomial: {
      const double left =
          static_cast<double>(period_ - std::min(step, period_)) / static_cast<double>(period_);
      rate *= floor_ + (1.0 - floor_) * Power(left, power_);
      break;
    }
    case Kind::kCosineRestarts: {
      const PlaceInPeriod place = FindPeriod(step, period_, period_factor_);
      rate *= floor_ + (1.0 - floor_) * HalfCosine(place.step, place.period);
      break;
    }
  }
  return static_cast<float>(rate);
}

}  // namespace pawl
