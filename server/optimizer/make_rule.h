// The part that all makers of rules share.
#ifndef PAWL_SERVER_OPTIMIZER_MAKE_RULE_H_
#define PAWL_SERVER_OPTIMIZER_MAKE_RULE_H_

#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "server/optimizer/gradient_settings.h"
#include "server/optimizer/kernel_rule.h"
#include "server/optimizer/learning_rate.h"
#include "server/optimizer/rules.h"

namespace pawl {

// `rate_field` is what errors call `learning_rate`.
template <typename Kernel>
UpdateRuleOr MakeRule(Kernel kernel, absl::string_view rate_field, float learning_rate, const Optimizer& spec, Isa isa) {
  PAWL_ASSIGN_OR_RETURN(const LearningRate rate, LearningRate::Create(rate_field, learning_rate, spec.schedule()));
  PAWL_ASSIGN_OR_RETURN(const GradientSettings settings, GradientSettings::Create(spec));
  return std::unique_ptr<const UpdateRule>(std::make_unique<KernelRule<Kernel>>(std::move(kernel), rate, settings, isa));
}

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MAKE_RULE_H_
