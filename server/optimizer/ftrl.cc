// FTRL-proximal: McMahan et al. 2013, "Ad click prediction: a view from the trenches", algorithm 1.
// The slots are n, then z; rate is the paper's alpha.
//
//   root  = sqrt(n),  n <- n + g g,  new_root = sqrt(n)
//   sigma = (new_root - root) / rate
//   z <- z + (g - sigma w)
//   w <- 0 if |z| <= l1, otherwise (sign(z) l1 - z) / ((beta + new_root) / rate + l2)
//
// As in the paper, the weights are a function of z and n only: a row's initial values last until
// its first update and do not come back.
//
// A rate below kMinFtrlRate changes neither weights nor slots.
#include "server/optimizer/kernel_rule.h"

namespace pawl {
namespace {

constexpr float kDefaultBeta = 1.0f;
constexpr float kDefaultInitialAccumulator = 0.1f;

struct FtrlKernel {
  using Formula = FtrlFormula;

  float beta;
  float l1;
  float l2;
  float initial_accumulator;

  float InitialSlot() const { return initial_accumulator; }
  PAWL_ALWAYS_INLINE Formula Begin(float rate, uint64_t /*prior_updates*/) const {
    return {rate, beta, l1, l2};
  }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeFtrl(const Optimizer& spec, Isa isa) {
  const Optimizer::Ftrl& own = spec.ftrl();
  FtrlKernel kernel;
  kernel.beta = own.has_beta() ? own.beta() : kDefaultBeta;
  kernel.l1 = own.l1();
  kernel.l2 = own.l2();
  kernel.initial_accumulator =
      own.has_initial_accumulator() ? own.initial_accumulator() : kDefaultInitialAccumulator;
  return MakeRule(kernel, own.learning_rate(), spec, isa);
}

}  // namespace pawl
