// What is done to a gradient before any optimizer sees it.
#ifndef PAWL_SERVER_OPTIMIZER_GRADIENT_SETTINGS_H_
#define PAWL_SERVER_OPTIMIZER_GRADIENT_SETTINGS_H_

#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace pawl {

struct GradientSettings {
  // INVALID_ARGUMENT, naming the field, for an impossible value.
  static absl::StatusOr<GradientSettings> Create(const Optimizer& spec);

  // clip_value; infinity if there is none.
  float bound;
  // 0 if there is none.
  float clip_norm;
  float l1;
  float l2;
};

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_GRADIENT_SETTINGS_H_
