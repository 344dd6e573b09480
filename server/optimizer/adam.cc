// Adam: Kingma and Ba 2015, "Adam: a method for stochastic optimization", algorithm 1, with
// t = prior_updates + 1:
//   m <- beta1 m + (1 - beta1) g
//   v <- beta2 v + (1 - beta2) (g g)
//   w <- w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
// The arithmetic moves the corrections out of the loop over the elements (c1 and c2 are the doubles
// of BiasCorrection):
//   corrected_rate = float(rate * c1), inverse_root = float(c2)
//   w <- w - (corrected_rate m) / (sqrt(v) inverse_root + epsilon)
//
// AdamW: Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2, first
// computes
//   w <- w keep, keep = float(1 - rate * weight_decay), in doubles
// so that the decay scales with the learning rate, as in PyTorch.
#include <cstdint>
#include <memory>
#include <utility>

#include "server/optimizer/kernel_rule.h"
#include "server/optimizer/math/bias_correction.h"

namespace pawl {
namespace {

constexpr float kDefaultBeta1 = 0.9f;
constexpr float kDefaultBeta2 = 0.999f;
constexpr float kDefaultAdamEpsilon = 1e-8f;
constexpr float kDefaultWeightDecay = 0.01f;

template <bool kDecoupledDecay>
struct AdamKernel {
  using Formula = AdamFormula<kDecoupledDecay>;
  static constexpr bool kCountsUpdates = true;

  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
  std::shared_ptr<const BiasCorrection> correction;

  float InitialSlot() const { return 0.0f; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t prior_updates) const {
    const BiasCorrection::Factors factors = correction->At(prior_updates);
    const double rate_in_double = rate;
    return {static_cast<float>(rate_in_double * factors.first),
            static_cast<float>(factors.second),
            beta1,
            1.0f - beta1,
            beta2,
            1.0f - beta2,
            epsilon,
            kDecoupledDecay
                ? static_cast<float>(1.0 - rate_in_double * static_cast<double>(weight_decay))
                : 1.0f};
  }
};

template <bool kDecoupledDecay, typename Own>
std::unique_ptr<const UpdateRule> Make(const Own& own, float weight_decay, const Optimizer& spec,
                                       Isa isa) {
  AdamKernel<kDecoupledDecay> kernel;
  kernel.beta1 = own.has_beta1() ? own.beta1() : kDefaultBeta1;
  kernel.beta2 = own.has_beta2() ? own.beta2() : kDefaultBeta2;
  kernel.epsilon = own.has_epsilon() ? own.epsilon() : kDefaultAdamEpsilon;
  kernel.weight_decay = weight_decay;
  kernel.correction = std::make_shared<const BiasCorrection>(kernel.beta1, kernel.beta2);
  return MakeRule(std::move(kernel), own.learning_rate(), spec, isa);
}

}  // namespace

std::unique_ptr<const UpdateRule> MakeAdam(const Optimizer& spec, Isa isa) {
  return Make<false>(spec.adam(), /*weight_decay=*/0.0f, spec, isa);
}

std::unique_ptr<const UpdateRule> MakeAdamW(const Optimizer& spec, Isa isa) {
  const Optimizer::AdamW& own = spec.adamw();
  return Make<true>(own, own.has_weight_decay() ? own.weight_decay() : kDefaultWeightDecay, spec,
                    isa);
}

}  // namespace pawl
