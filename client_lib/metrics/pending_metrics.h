// The figures of a process that the scheduler has not acknowledged.
#ifndef PAWL_CLIENT_LIB_METRICS_PENDING_METRICS_H_
#define PAWL_CLIENT_LIB_METRICS_PENDING_METRICS_H_

#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Keeps the latest figure of each name, because that is what the scheduler keeps. So the memory is
// bounded while the scheduler does not answer. Not thread-safe.
class PendingMetrics {
 public:
  // Replaces the figure of this name unless that is of a later step. INVALID_ARGUMENT:
  // CheckUserMetric. RESOURCE_EXHAUSTED: kMaxMetricNames other names were added before.
  absl::Status Add(const std::string& name, uint64_t step, double value);

  // Adds what is pending to a report. It stays pending.
  void AddTo(WorkerProgress& progress) const;
  // The scheduler has the report. What has been added or replaced since stays pending.
  void Acknowledge(const WorkerProgress& progress);
  // Whether nothing is pending.
  bool empty() const { return pending_.empty(); }

 private:
  struct Figure {
    uint64_t step = 0;
    double value = 0;
  };
  // By name.
  absl::btree_map<std::string, Figure> pending_;
  // All that were ever added.
  absl::flat_hash_set<std::string> names_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_METRICS_PENDING_METRICS_H_
