// The time that a rank waits for others.
#ifndef PAWL_WORKER_TRAIN_WAITING_TIME_H_
#define PAWL_WORKER_TRAIN_WAITING_TIME_H_

#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

// Used by the rank's thread.
struct WaitingTime {
  double seconds = 0;

  // Runs `call`, which waits for others, and adds its duration.
  template <typename Call>
  absl::Status Measure(Call call) {
    const MonotonicTime begin = Clock::Real().Now();
    absl::Status status = call();
    seconds += Seconds(Clock::Real().Now() - begin);
    return status;
  }
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_WAITING_TIME_H_
