// The settings that are applied to a gradient before every optimizer.
#ifndef PAWL_SERVER_OPTIMIZER_GRADIENT_SETTINGS_H_
#define PAWL_SERVER_OPTIMIZER_GRADIENT_SETTINGS_H_

#include <limits>

#include "proto/types.pb.h"

namespace pawl {

struct GradientSettings {
  explicit GradientSettings(const Optimizer& spec)
      : bound(spec.clip_value() > 0.0f ? spec.clip_value()
                                       : std::numeric_limits<float>::infinity()),
        clip_norm(spec.clip_norm()),
        l1(spec.l1()),
        l2(spec.l2()) {}

  // clip_value; infinity if unset.
  float bound;
  // 0 if unset.
  float clip_norm;
  float l1;
  float l2;
};

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_GRADIENT_SETTINGS_H_
