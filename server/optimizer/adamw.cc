// AdamW; adam_kernel.h has the formula.
#include "server/optimizer/adam_kernel.h"
#include "server/optimizer/make_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultWeightDecay = 0.01f;

}  // namespace

std::unique_ptr<const UpdateRule> MakeAdamW(const Optimizer& spec, Isa isa) {
  const Optimizer::AdamW& own = spec.adamw();
  AdamKernel</*kDecoupledDecay=*/true> kernel;
  kernel.beta1 = own.has_beta1() ? own.beta1() : kDefaultBeta1;
  kernel.beta2 = own.has_beta2() ? own.beta2() : kDefaultBeta2;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultAdamEpsilon;
  kernel.weight_decay = own.has_weight_decay() ? own.weight_decay() : kDefaultWeightDecay;
  kernel.correction = std::make_shared<const BiasCorrection>(kernel.beta1, kernel.beta2);
  return MakeRule(std::move(kernel), own.learning_rate(), spec, isa);
}

}  // namespace pawl
