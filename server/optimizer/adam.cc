// Adam; adam_kernel.h has the formula.
#include "server/optimizer/adam_kernel.h"
#include "server/optimizer/make_rule.h"

namespace pawl {

std::unique_ptr<const UpdateRule> MakeAdam(const Optimizer& spec, Isa isa) {
  const Optimizer::Adam& own = spec.adam();
  AdamKernel</*kDecoupledDecay=*/false> kernel;
  kernel.beta1 = own.has_beta1() ? own.beta1() : kDefaultBeta1;
  kernel.beta2 = own.has_beta2() ? own.beta2() : kDefaultBeta2;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultAdamEpsilon;
  kernel.weight_decay = 0.0f;
  kernel.correction = std::make_shared<const BiasCorrection>(kernel.beta1, kernel.beta2);
  return MakeRule(std::move(kernel), own.learning_rate(), spec, isa);
}

}  // namespace pawl
