// Stochastic gradient descent: Robbins and Monro 1951, "A stochastic approximation method", equation 6.
//
//   w <- w - rate g
#include "server/optimizer/make_rule.h"

namespace pawl {
namespace {

struct SgdKernel {
  static constexpr size_t kSlotArrays = 0;
  static constexpr size_t kRowSlots = 0;
  struct Pass {
    float rate;
  };

  float InitialSlot() const { return 0.0f; }
  PAWL_ALWAYS_INLINE Pass Begin(float rate, uint64_t /*prior_updates*/) const { return {rate}; }
  PAWL_ALWAYS_INLINE static void Element(const Pass& pass, float g, float& w) { w = w - pass.rate * g; }
};

}  // namespace

UpdateRuleOr MakeSgd(const Optimizer& spec, Isa isa) {
  return MakeRule(SgdKernel{}, "optimizer.sgd.learning_rate", spec.sgd().learning_rate(), spec, isa);
}

}  // namespace pawl
