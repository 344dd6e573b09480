// Learning rate schedules.
#ifndef PAWL_SERVER_OPTIMIZER_LEARNING_RATE_H_
#define PAWL_SERVER_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>

#include "proto/types.pb.h"

namespace pawl {

// The rate that the optimizer's kind has, before its schedule; 0 for Assign, and if none is set.
float BaseRateOf(const Optimizer& optimizer);

// A learning rate with its schedule, a pure function of the step. Immutable, hence thread-safe.
// Computed in doubles and rounded to float once at the end:
//   rate(t) = float(base * warmup(t) * factor(t)), multiplied from left to right, where
//   warmup(t) = 1 if t + 1 >= warmup_steps, else (t + 1) / warmup_steps
//   factor(t) = 1                                                        constant
//             = DeterministicPower(gamma, t / every_steps)               step
//             = floor + (1 - floor) * ((1 + cos) * 0.5), where           cosine
//               cos = DeterministicCosPi(t / total_steps), -1 if t >= total_steps
//               (Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts)
//             = floor + (1 - floor) * left ^ power, where                  polynomial
//               left = (total_steps - t) / total_steps, 0 if t >= total_steps;
//               x ^ power = x if power is 1, 0 if x is 0,
//                           else DeterministicExp(power * DeterministicLog(x))
//             = floor + (1 - floor) * ((1 + cos) * 0.5), where             cosine_restarts
//               cos = DeterministicCosPi(c / n) at step c of a period of n steps
class LearningRate {
 public:
  // REQUIRES: ValidateOptimizer (client_lib/base/table_validation.h) accepts an optimizer with
  // these.
  LearningRate(float base, const LearningRateSchedule& schedule);

  // The rate at `step`. `base` replaces the rate that *this was made with, unless it is 0.
  float At(uint64_t step, float base = 0.0f) const {
    if (base == 0.0f) base = base_;
    return kind_ == Kind::kFixed ? base : Scheduled(step, base);
  }

 private:
  // kFixed: constant without warm-up.
  enum class Kind { kFixed, kConstant, kStep, kCosine, kPolynomial, kCosineRestarts };

  float Scheduled(uint64_t step, float base) const;

  Kind kind_ = Kind::kFixed;
  float base_;
  uint64_t warmup_steps_;
  // Step: every_steps. Cosine and polynomial: total_steps. Restarts: first_period_steps.
  uint64_t period_ = 1;
  double gamma_ = 1.0;
  double power_ = 1.0;
  uint64_t period_factor_ = 1;
  double floor_ = 0.0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_LEARNING_RATE_H_
