// Sums of server counters.
#ifndef PAWL_SCHEDULER_STATUS_SERVER_COUNTERS_H_
#define PAWL_SCHEDULER_STATUS_SERVER_COUNTERS_H_

#include "proto/server_control.pb.h"

namespace pawl {

// Adds `from` to `to`; the step and the staleness become the maximum of both.
void AddCounters(const ServerCounters& from, ServerCounters& to);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_SERVER_COUNTERS_H_
