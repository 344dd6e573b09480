#include "server/optimizer/gradient_settings.h"

#include <limits>

#include "client_lib/base/status_macros.h"
#include "server/optimizer/hyper_parameter.h"

namespace pawl {

absl::StatusOr<GradientSettings> GradientSettings::Create(const Optimizer& spec) {
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.clip_value", spec.clip_value()));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.clip_norm", spec.clip_norm()));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.l1", spec.l1()));
  PAWL_RETURN_IF_ERROR(RequireNotNegative("optimizer.l2", spec.l2()));
  GradientSettings settings;
  settings.bound = spec.clip_value() > 0.0f ? spec.clip_value() : std::numeric_limits<float>::infinity();
  settings.clip_norm = spec.clip_norm();
  settings.l1 = spec.l1();
  settings.l2 = spec.l2();
  return settings;
}

}  // namespace pawl
