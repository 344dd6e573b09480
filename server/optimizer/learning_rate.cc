#include "server/optimizer/learning_rate.h"

#include "server/optimizer/math/deterministic_math.h"

namespace pawl {

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
    case Kind::kCosine: {
      const double cosine =
          step >= period_
              ? -1.0
              : DeterministicCosPi(static_cast<double>(step) / static_cast<double>(period_));
      rate *= floor_ + (1.0 - floor_) * ((1.0 + cosine) * 0.5);
      break;
    }
  }
  return static_cast<float>(rate);
}

}  // namespace pawl
