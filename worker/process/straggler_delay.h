// Injected delays, for experiments with slow workers.
#ifndef PAWL_WORKER_PROCESS_STRAGGLER_DELAY_H_
#define PAWL_WORKER_PROCESS_STRAGGLER_DELAY_H_

#include <cstdint>

#include "client_lib/base/clock.h"
#include "client_lib/job/straggler.h"

namespace pawl {

// How long the rank waits in the step before it computes and pushes the step's gradients, so that
// these are as stale as those of a slow worker. A function of the arguments alone: runs of a job
// have the same delays, whatever their consistency mode and their worker processes. Zero for ranks
// that Straggler::ranks excludes.
MonotonicDuration DelayOf(const Straggler& straggler, uint64_t job_seed, uint32_t rank,
                          uint64_t step);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_STRAGGLER_DELAY_H_
