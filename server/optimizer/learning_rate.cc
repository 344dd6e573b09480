#include "server/optimizer/learning_rate.h"

#include "client_lib/base/status_macros.h"
#include "server/optimizer/deterministic_math.h"
#include "server/optimizer/hyper_parameter.h"

namespace pawl {

absl::StatusOr<LearningRate> LearningRate::Create(absl::string_view field, float base,
                                                  const LearningRateSchedule& schedule) {
  PAWL_RETURN_IF_ERROR(RequirePositive(field, base));
  LearningRate rate;
  rate.base_ = base;
  rate.warmup_steps_ = schedule.warmup_steps();
  switch (schedule.kind_case()) {
    case LearningRateSchedule::KIND_NOT_SET:
      rate.kind_ = rate.warmup_steps_ > 1 ? Kind::kConstant : Kind::kFixed;
      break;
    case LearningRateSchedule::kStep: {
      const float gamma = schedule.step().gamma();
      if (schedule.step().every_steps() == 0) {
        return absl::InvalidArgumentError("optimizer.schedule.step.every_steps is 0: it must be at least 1");
      }
      // Above 1 the rate would grow without bound.
      if (!(gamma > 0.0f && gamma <= 1.0f)) {
        return ImpossibleHyperParameter("optimizer.schedule.step.gamma", gamma, "above 0 and at most 1");
      }
      rate.kind_ = Kind::kStep;
      rate.period_ = schedule.step().every_steps();
      rate.gamma_ = gamma;
      break;
    }
    case LearningRateSchedule::kCosine: {
      const float floor = schedule.cosine().floor();
      if (schedule.cosine().total_steps() == 0) {
        return absl::InvalidArgumentError("optimizer.schedule.cosine.total_steps is 0: it must be at least 1");
      }
      if (!(floor >= 0.0f && floor <= 1.0f)) {
        return ImpossibleHyperParameter("optimizer.schedule.cosine.floor", floor, "at least 0 and at most 1");
      }
      rate.kind_ = Kind::kCosine;
      rate.period_ = schedule.cosine().total_steps();
      rate.floor_ = floor;
      break;
    }
  }
  return rate;
}

float LearningRate::Scheduled(uint64_t step) const {
  double rate = base_;
  // Without t + 1, which could wrap.
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
          step >= period_ ? -1.0 : DeterministicCosPi(static_cast<double>(step) / static_cast<double>(period_));
      rate *= floor_ + (1.0 - floor_) * ((1.0 + cosine) * 0.5);
      break;
    }
  }
  return static_cast<float>(rate);
}

}  // namespace pawl
