// The metrics for Prometheus; deploy/reference/metrics.md lists them.
#ifndef PAWL_SCHEDULER_STATUS_METRICS_H_
#define PAWL_SCHEDULER_STATUS_METRICS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "prometheus/metric_family.h"
#include "proto/scheduler.pb.h"
#include "scheduler/checkpoint/checkpoint_repairs.h"

namespace pawl {

// Pure. Counters (names in _total) may restart from 0 when the scheduler or the node restarts.
// `state_unsaved_s`: how long the scheduler's newest state has not been saved.
std::vector<prometheus::MetricFamily> Metrics(const GetStatusResponse& status,
                                              const std::map<EventKind, uint64_t>& events,
                                              const CheckpointFileCounts& checkpoint_files,
                                              double state_unsaved_s);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_METRICS_H_
