// One maker for each optimizer, in a file of its own name, with its formula and
// where that comes from. INVALID_ARGUMENT, naming the field, for an impossible hyper-parameter.
#ifndef PAWL_SERVER_OPTIMIZER_RULES_H_
#define PAWL_SERVER_OPTIMIZER_RULES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"
#include "server/optimizer/isa.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

using UpdateRuleOr = absl::StatusOr<std::unique_ptr<const UpdateRule>>;

// Each REQUIRES that spec.kind is the one that the name says and that this machine has `isa`.
UpdateRuleOr MakeSgd(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeMomentum(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeAdagrad(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeRowWiseAdagrad(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeRmsProp(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeAdam(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeAdamW(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeFtrl(const Optimizer& spec, Isa isa);
UpdateRuleOr MakeAssign(const Optimizer& spec, Isa isa);

// Whichever the spec names, with chosen instructions, for tests and benchmarks.
UpdateRuleOr MakeUpdateRule(const Optimizer& spec, Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_RULES_H_
