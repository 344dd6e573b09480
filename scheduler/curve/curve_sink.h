// Where the points of a learning curve are written.
#ifndef PAWL_SCHEDULER_CURVE_CURVE_SINK_H_
#define PAWL_SCHEDULER_CURVE_CURVE_SINK_H_

#include "absl/status/status.h"
#include "scheduler/curve/curve.h"

namespace pawl {

// Used by one thread.
class CurveSink {
 public:
  virtual ~CurveSink() = default;

  // Written at once, and not synced. `unix_s`: when the point was recorded.
  virtual absl::Status Add(double unix_s, const CurvePoint& point) = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_CURVE_SINK_H_
