// The latest of each figure that programs of users report.
#ifndef PAWL_SCHEDULER_STATUS_USER_METRICS_H_
#define PAWL_SCHEDULER_STATUS_USER_METRICS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// At most kMaxMetricNames names (client_lib/metrics/user_metric.h). Not thread-safe.
class UserMetrics {
 public:
  // INVALID_ARGUMENT: a name or value that CheckUserMetric refuses, or more than
  // kMaxMetricsInMessage figures.
  static absl::Status Check(const WorkerProgress& progress);

  // Keeps each name's figure of the highest step, and of equal steps the last. Ignores further
  // names than the limit, and logs the first of them. REQUIRES: Check is OK.
  void Note(const WorkerProgress& progress);

  // In the order of their names.
  void AddTo(GetStatusResponse& status) const;

  // With the progress of the first stored worker: there are no figures without workers. Restore
  // takes them from that of any node.
  void Save(StoredMembership& stored) const;
  void Restore(const StoredMembership& stored);

 private:
  // By name.
  std::map<std::string, UserMetric> latest_;
  bool has_warned_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_USER_METRICS_H_
