// One maker for each optimizer, in a file of its own name, with its formula and where that comes
// from.
#ifndef PAWL_SERVER_OPTIMIZER_RULES_H_
#define PAWL_SERVER_OPTIMIZER_RULES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"
#include "server/optimizer/math/isa.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

// Each REQUIRES that ValidateOptimizer (client_lib/base/table_validation.h) passes the spec, that
// its kind is the one that the name says and that this machine has `isa`.
std::unique_ptr<const UpdateRule> MakeSgd(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeMomentum(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAdagrad(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeRowWiseAdagrad(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeRmsProp(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAdam(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAdamW(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeFtrl(const Optimizer& spec, Isa isa);
std::unique_ptr<const UpdateRule> MakeAssign(const Optimizer& spec, Isa isa);

// UpdateRule::Create with chosen instructions, for tests and benchmarks.
absl::StatusOr<std::unique_ptr<const UpdateRule>> MakeUpdateRule(const Optimizer& spec, Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_RULES_H_
