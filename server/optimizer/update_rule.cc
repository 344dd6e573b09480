#include "server/optimizer/update_rule.h"

#include "server/optimizer/isa.h"
#include "server/optimizer/rules.h"

namespace pawl {

UpdateRuleOr MakeUpdateRule(const Optimizer& spec, Isa isa) {
  switch (spec.kind_case()) {
    case Optimizer::kSgd:
      return MakeSgd(spec, isa);
    case Optimizer::kMomentum:
      return MakeMomentum(spec, isa);
    case Optimizer::kAdagrad:
      return MakeAdagrad(spec, isa);
    case Optimizer::kRowwiseAdagrad:
      return MakeRowWiseAdagrad(spec, isa);
    case Optimizer::kRmsprop:
      return MakeRmsProp(spec, isa);
    case Optimizer::kAdam:
      return MakeAdam(spec, isa);
    case Optimizer::kAdamw:
      return MakeAdamW(spec, isa);
    case Optimizer::kFtrl:
      return MakeFtrl(spec, isa);
    case Optimizer::kAssign:
      return MakeAssign(spec, isa);
    case Optimizer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "optimizer names none: set one of sgd, momentum, adagrad, rowwise_adagrad, rmsprop, adam, adamw, ftrl, assign");
}

UpdateRuleOr UpdateRule::Create(const Optimizer& spec) { return MakeUpdateRule(spec, BestIsa()); }

}  // namespace pawl
