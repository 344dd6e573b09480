// RMSProp: Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5, slide 29;
// epsilon is outside the root, as in PyTorch.
//
//   a <- rho a + (1 - rho) (g g)
//   w <- w - (rate g) / (sqrt(a) + epsilon)
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultRho = 0.99f;
constexpr float kDefaultEpsilon = 1e-8f;

struct RmsPropKernel {
  using Formula = RmsPropFormula;

  float rho;
  float epsilon;

  float InitialSlot() const { return 0.0f; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const {
    return {rate, rho, 1.0f - rho, epsilon};
  }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeRmsProp(const Optimizer& spec, Isa isa) {
  const Optimizer::RmsProp& own = spec.rmsprop();
  RmsPropKernel kernel;
  kernel.rho = own.has_rho() ? own.rho() : kDefaultRho;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultEpsilon;
  return MakeRule(kernel, own.learning_rate(), spec, isa);
}

}  // namespace pawl
