#include "scheduler/status/server_counters.h"

#include <algorithm>

#include "client_lib/daemon/staleness_counts.h"

namespace pawl {

void AddCounters(const ServerCounters& from, ServerCounters& to) {
  to.set_pushes_applied(to.pushes_applied() + from.pushes_applied());
  to.set_pushes_deduplicated(to.pushes_deduplicated() + from.pushes_deduplicated());
  to.set_pushes_late(to.pushes_late() + from.pushes_late());
  to.set_requests_refused(to.requests_refused() + from.requests_refused());
  to.set_staleness_max(std::max(to.staleness_max(), from.staleness_max()));
  AddHistogram(from.clock_staleness(), *to.mutable_clock_staleness());
  AddHistogram(from.update_staleness(), *to.mutable_update_staleness());
  to.set_pulls_beyond_bound(to.pulls_beyond_bound() + from.pulls_beyond_bound());
  to.set_files_damaged(to.files_damaged() + from.files_damaged());
  to.set_files_repaired(to.files_repaired() + from.files_repaired());
  to.set_rows(to.rows() + from.rows());
  to.set_parameter_bytes(to.parameter_bytes() + from.parameter_bytes());
  to.set_waiting_calls(to.waiting_calls() + from.waiting_calls());
  to.set_keys_pulled(to.keys_pulled() + from.keys_pulled());
  to.set_keys_pushed(to.keys_pushed() + from.keys_pushed());
  to.set_step(std::max(to.step(), from.step()));
  to.set_bytes_in_flight(to.bytes_in_flight() + from.bytes_in_flight());
  to.set_max_bytes_in_flight(to.max_bytes_in_flight() + from.max_bytes_in_flight());
  to.set_cpu_s(to.cpu_s() + from.cpu_s());
  to.set_retained_replicas(to.retained_replicas() + from.retained_replicas());
  to.set_snapshot_bytes_sent(to.snapshot_bytes_sent() + from.snapshot_bytes_sent());
  to.set_catch_up_bytes_sent(to.catch_up_bytes_sent() + from.catch_up_bytes_sent());
  to.set_retained_bytes(to.retained_bytes() + from.retained_bytes());
}

}  // namespace pawl
