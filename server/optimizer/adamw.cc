// AdamW; adam_kernel.h has the formula.
#include "server/optimizer/adam_kernel.h"
#include "server/optimizer/hyper_parameter.h"
#include "server/optimizer/make_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultWeightDecay = 0.01f;

}  // namespace

UpdateRuleOr MakeAdamW(const Optimizer& spec, Isa isa) {
  const Optimizer::AdamW& own = spec.adamw();
  AdamKernel</*kDecoupledDecay=*/true> kernel;
  kernel.beta1 = own.has_beta1() ? own.beta1() : kDefaultBeta1;
  kernel.beta2 = own.has_beta2() ? own.beta2() : kDefaultBeta2;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultAdamEpsilon;
  kernel.weight_decay = own.has_weight_decay() ? own.weight_decay() : kDefaultWeightDecay;
  PAWL_RETURN_IF_ERROR(RequireDecay("optimizer.adamw.beta1", kernel.beta1));
  PAWL_RETURN_IF_ERROR(RequireDecay("optimizer.adamw.beta2", kernel.beta2));
  PAWL_RETURN_IF_ERROR(RequirePositive("optimizer.adamw.epsilon", kernel.epsilon));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.adamw.weight_decay", kernel.weight_decay));
  kernel.correction = std::make_shared<const BiasCorrection>(kernel.beta1, kernel.beta2);
  return MakeRule(std::move(kernel), "optimizer.adamw.learning_rate", own.learning_rate(), spec, isa);
}

}  // namespace pawl
