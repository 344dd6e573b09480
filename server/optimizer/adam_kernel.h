// The kernel shared by Adam and AdamW.
//
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
#ifndef PAWL_SERVER_OPTIMIZER_ADAM_KERNEL_H_
#define PAWL_SERVER_OPTIMIZER_ADAM_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/optimizer/math/bias_correction.h"
#include "server/optimizer/math/isa.h"
#include "server/optimizer/update_formula.h"

namespace pawl {

inline constexpr float kDefaultBeta1 = 0.9f;
inline constexpr float kDefaultBeta2 = 0.999f;
inline constexpr float kDefaultAdamEpsilon = 1e-8f;

template <bool kDecoupledDecay>
struct AdamKernel {
  using Formula = AdamFormula<kDecoupledDecay>;

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

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_ADAM_KERNEL_H_
