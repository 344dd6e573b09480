// The figures of several servers as one.
#ifndef PAWL_SCHEDULER_STATUS_SERVER_COUNTERS_H_
#define PAWL_SCHEDULER_STATUS_SERVER_COUNTERS_H_

#include "proto/server_control.pb.h"

namespace pawl {

// Adds `from` to `to`; of the step and the greatest staleness it keeps the greater one.
void AddCounters(const ServerCounters& from, ServerCounters& to);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_SERVER_COUNTERS_H_
