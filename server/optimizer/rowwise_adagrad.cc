// Row-wise Adagrad: Adagrad with one accumulator per row, so that an embedding's state is one
// float. Source: Gupta, Bengio and Weston 2014, "Training highly multiclass classifiers", section 4
// (AdaGrad fixed within a class's parameters), in the form of `rowwise_adagrad` in DLRM and FBGEMM.
//
//   a <- a + mean(g g)                                  over the row; see SumOfSquares
//   w <- w - (rate / (sqrt(a) + epsilon)) g
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultInitialAccumulator = 0.1f;
constexpr float kDefaultEpsilon = 1e-10f;

struct RowWiseAdagradKernel {
  using Formula = RowWiseAdagradFormula;

  float initial_accumulator;
  float epsilon;

  float InitialSlot() const { return initial_accumulator; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const {
    return {rate, epsilon};
  }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeRowWiseAdagrad(const Optimizer& spec, Isa isa) {
  const Optimizer::RowWiseAdagrad& own = spec.rowwise_adagrad();
  RowWiseAdagradKernel kernel;
  kernel.initial_accumulator =
      own.has_initial_accumulator() ? own.initial_accumulator() : kDefaultInitialAccumulator;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultEpsilon;
  return MakeRule(kernel, own.learning_rate(), spec, isa);
}

}  // namespace pawl
