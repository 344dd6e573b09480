// Creates the rule for a kernel; used by the factories of rules.h.
#ifndef PAWL_SERVER_OPTIMIZER_MAKE_RULE_H_
#define PAWL_SERVER_OPTIMIZER_MAKE_RULE_H_

#include <memory>
#include <utility>

#include "server/optimizer/gradient_settings.h"
#include "server/optimizer/kernel_rule.h"
#include "server/optimizer/learning_rate.h"
#include "server/optimizer/rules.h"

namespace pawl {

// REQUIRES: the conditions of rules.h.
template <typename Kernel>
std::unique_ptr<const UpdateRule> MakeRule(Kernel kernel, float learning_rate,
                                           const Optimizer& spec, Isa isa) {
  return std::make_unique<const KernelRule<Kernel>>(
      std::move(kernel), LearningRate(learning_rate, spec.schedule()), GradientSettings(spec), isa);
}

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MAKE_RULE_H_
