// Momentum: Polyak 1964, "Some methods of speeding up the convergence of iteration methods",
// equation 9, and Nesterov's variant in the form of Sutskever, Martens, Dahl and Hinton 2013, "On
// the importance of initialization and momentum in deep learning", equations 1 to 4. Both have the
// learning rate outside the velocity, as in PyTorch:
//
//   v <- momentum v + g
//   w <- w - rate v                     or, Nesterov: w <- w - rate (g + momentum v)
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultMomentum = 0.9f;

template <bool kNesterov>
struct MomentumKernel {
  using Formula = MomentumFormula<kNesterov>;

  float momentum;

  float InitialSlot() const { return 0.0f; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const {
    return {rate, momentum};
  }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeMomentum(const Optimizer& spec, Isa isa) {
  const Optimizer::Momentum& own = spec.momentum();
  const float momentum = own.has_momentum() ? own.momentum() : kDefaultMomentum;
  if (own.nesterov())
    return MakeRule(MomentumKernel<true>{momentum}, own.learning_rate(), spec, isa);
  return MakeRule(MomentumKernel<false>{momentum}, own.learning_rate(), spec, isa);
}

}  // namespace pawl
