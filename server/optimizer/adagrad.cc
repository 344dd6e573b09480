// Adagrad: Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and
// stochastic optimization", figure 1 with the diagonal matrix of equation 1; epsilon is outside the
// root, as in PyTorch.
//
//   a <- a + g g
//   w <- w - (rate g) / (sqrt(a) + epsilon)
//
// Row-wise Adagrad: Adagrad with one accumulator per row, so that an embedding's state is one
// float. Source: Gupta, Bengio and Weston 2014, "Training highly multiclass classifiers", section 4
// (AdaGrad fixed within a class's parameters), in the form of `rowwise_adagrad` in DLRM and FBGEMM.
//
//   a <- a + mean(g g)                                  over the row; see SumOfSquares
//   w <- w - (rate / (sqrt(a) + epsilon)) g
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultInitialAccumulator = 0.0f;
constexpr float kDefaultEpsilon = 1e-10f;

template <typename F>
struct AdagradKernel {
  using Formula = F;

  float initial_accumulator;
  float epsilon;

  float InitialSlot() const { return initial_accumulator; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const {
    return {rate, epsilon};
  }
};

template <typename Formula, typename Own>
std::unique_ptr<const UpdateRule> Make(const Own& own, const Optimizer& spec, Isa isa) {
  AdagradKernel<Formula> kernel;
  kernel.initial_accumulator =
      own.has_initial_accumulator() ? own.initial_accumulator() : kDefaultInitialAccumulator;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultEpsilon;
  return MakeRule(kernel, own.learning_rate(), spec, isa);
}

}  // namespace

std::unique_ptr<const UpdateRule> MakeAdagrad(const Optimizer& spec, Isa isa) {
  return Make<AdagradFormula>(spec.adagrad(), spec, isa);
}

std::unique_ptr<const UpdateRule> MakeRowWiseAdagrad(const Optimizer& spec, Isa isa) {
  return Make<RowWiseAdagradFormula>(spec.rowwise_adagrad(), spec, isa);
}

}  // namespace pawl
