#include "server/optimizer/update_rule.h"

#include "client_lib/base/status_macros.h"
#include "client_lib/base/table_validation.h"
#include "server/optimizer/math/isa.h"
#include "server/optimizer/rules.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<const UpdateRule>> MakeUpdateRule(const Optimizer& spec, Isa isa) {
  PAWL_RETURN_IF_ERROR(ValidateOptimizer(spec, "optimizer"));
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
  return absl::InternalError("an optimizer without a kind passed validation");
}

absl::StatusOr<std::unique_ptr<const UpdateRule>> UpdateRule::Create(const Optimizer& spec) {
  return MakeUpdateRule(spec, BestIsa());
}

}  // namespace pawl
