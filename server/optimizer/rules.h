// The factories of the optimizers. Each is in the file named after the optimizer, with its formula
// and source.
#ifndef PAWL_SERVER_OPTIMIZER_RULES_H_
#define PAWL_SERVER_OPTIMIZER_RULES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"
#include "server/optimizer/math/isa.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

// REQUIRES for each: ValidateOptimizer (client_lib/base/table_validation.h) accepts the spec, the
// spec has the kind in the function's name, and this machine supports `isa`.
std::unique_ptr<const UpdateRule> MakeSgd(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeMomentum(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAdagrad(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeRowWiseAdagrad(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeRmsProp(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAdam(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAdamW(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeFtrl(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAssign(const Optimizer& spec, Isa isa);

// UpdateRule::Create with the given instructions, for tests and benchmarks.
absl::StatusOr<std::unique_ptr<const UpdateRule>> MakeUpdateRule(const Optimizer& spec, Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_RULES_H_
