// FTRL-proximal: McMahan et al. 2013, "Ad click prediction: a view from the trenches", algorithm 1. The
// slots are n, then z; rate is the paper's alpha.
//
//   root  = sqrt(n),  n <- n + g g,  new_root = sqrt(n)
//   sigma = (new_root - root) / rate
//   z <- z + (g - sigma w)
//   w <- 0 if |z| <= l1, otherwise (sign(z) l1 - z) / ((beta + new_root) / rate + l2)
//
// As in the paper the weights are a function of z and n alone: what the initializer gave a row serves until
// its first update and does not come back.
#include "server/optimizer/hyper_parameter.h"
#include "server/optimizer/make_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultBeta = 1.0f;
constexpr float kDefaultInitialAccumulator = 0.1f;

struct FtrlKernel {
  using Formula = FtrlFormula;

  float beta;
  float l1;
  float l2;
  float initial_accumulator;

  float InitialSlot() const { return initial_accumulator; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const { return {rate, beta, l1, l2}; }
};

}  // namespace

UpdateRuleOr MakeFtrl(const Optimizer& spec, Isa isa) {
  const Optimizer::Ftrl& own = spec.ftrl();
  FtrlKernel kernel;
  kernel.beta = own.has_beta() ? own.beta() : kDefaultBeta;
  kernel.l1 = own.l1();
  kernel.l2 = own.l2();
  kernel.initial_accumulator = own.has_initial_accumulator() ? own.initial_accumulator() : kDefaultInitialAccumulator;
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.ftrl.beta", kernel.beta));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.ftrl.l1", kernel.l1));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.ftrl.l2", kernel.l2));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.ftrl.initial_accumulator", kernel.initial_accumulator));
  if (kernel.beta == 0.0f && kernel.l2 == 0.0f && kernel.initial_accumulator == 0.0f) {
    return absl::InvalidArgumentError(
        "optimizer.ftrl: beta, l2 and initial_accumulator are all 0, which leaves nothing to divide by: set one of "
        "them above 0");
  }
  if (spec.l1() != 0.0f || spec.l2() != 0.0f) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.", spec.l1() != 0.0f ? "l1" : "l2", " is ",
                                                   spec.l1() != 0.0f ? spec.l1() : spec.l2(),
                                                   ": with ftrl set optimizer.ftrl.l1 and optimizer.ftrl.l2 instead"));
  }
  return MakeRule(kernel, "optimizer.ftrl.learning_rate", own.learning_rate(), spec, isa);
}

}  // namespace pawl
