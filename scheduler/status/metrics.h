// The metrics for Prometheus and autoscalers. All metrics are named here.
//
//   pawl_job_state{state}                   1 for the present state
//   pawl_end_checkpoint_failed              1 if the job has a folder but no final checkpoint
//   pawl_samples_total, pawl_steps          as in `pawlctl status`
//   pawl_servers{state}, pawl_workers{state}
//                                           active, standby (present without work), draining
//   pawl_servers_wanted, pawl_workers_wanted
//   pawl_routing_epoch
//   pawl_replicas_left, pawl_bytes_left     to be copied until the placement is reached
//   pawl_handover_pause_seconds{quantile}   of the last kMaxPauses handovers; 1 is the longest
//   pawl_node_deaths_total, pawl_node_returns_total, pawl_failovers_total, pawl_handovers_total,
//   pawl_replicas_moved_total, pawl_bytes_moved_total
//   pawl_checkpoint_files_damaged_total, pawl_checkpoint_files_replaced_total
//                                           they differ while a damaged file is not replaced
//
// For each present server, {server}:
//   pawl_server_partitions, pawl_server_parameter_bytes, pawl_server_rows
//   pawl_server_waiting_calls               for a step, for replicas, or for the log
//   pawl_server_bytes_in_flight, pawl_server_max_bytes_in_flight
//                                           a ratio near 1 means that the server is overloaded
//   pawl_server_keys_pulled_total, pawl_server_keys_pushed_total,
//   pawl_server_requests_refused_total
//   pawl_server_cpu_seconds_total           its rate is the number of busy cores
//
// For the scheduler and each present server, {node}:
//   pawl_tls                                1 if connections are encrypted and authenticated
//   pawl_connections, pawl_refused_connections_total
//   pawl_certificate_expires_timestamp_seconds, pawl_certificate_reload_failed,
//   pawl_refused_calls_total, pawl_delayed_calls_total, pawl_calls_over_quota_total,
//   pawl_closed_connections_total
//                                           with TLS
//
// For each present worker, {worker}:
//   pawl_worker_ranks, pawl_worker_samples_total
//   pawl_worker_training_seconds_total, pawl_worker_waiting_seconds_total
//                                           the ratio of their rates is the share of time spent
//                                           waiting
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
std::vector<prometheus::MetricFamily> Metrics(const GetStatusResponse& status,
                                              const std::map<EventKind, uint64_t>& events,
                                              const CheckpointFileCounts& checkpoint_files);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_METRICS_H_
