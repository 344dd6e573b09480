// Adagrad: Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and
// stochastic optimization", figure 1 with the diagonal matrix of equation 1; epsilon is outside the
// root, as in PyTorch.
//
//   a <- a + g g
//   w <- w - (rate g) / (sqrt(a) + epsilon)
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultInitialAccumulator = 0.1f;
constexpr float kDefaultEpsilon = 1e-10f;

struct AdagradKernel {
  using Formula = AdagradFormula;

  float initial_accumulator;
  float epsilon;

  float InitialSlot() const { return initial_accumulator; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const {
    return {rate, epsilon};
  }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeAdagrad(const Optimizer& spec, Isa isa) {
  const Optimizer::Adagrad& own = spec.adagrad();
  AdagradKernel kernel;
  kernel.initial_accumulator =
      own.has_initial_accumulator() ? own.initial_accumulator() : kDefaultInitialAccumulator;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultEpsilon;
  return MakeRule(kernel, own.learning_rate(), spec, isa);
}

}  // namespace pawl
