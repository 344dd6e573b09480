// Stochastic gradient descent: Robbins and Monro 1951, "A stochastic approximation method",
// equation 6.
//
//   w <- w - rate g
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

struct SgdKernel {
  using Formula = SgdFormula;

  float InitialSlot() const { return 0.0f; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const { return {rate}; }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeSgd(const Optimizer& spec, Isa isa) {
  return MakeRule(SgdKernel{}, spec.sgd().learning_rate(), spec, isa);
}

}  // namespace pawl
