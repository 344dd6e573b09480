// How long a rank waits for others.
#ifndef PAWL_WORKER_TRAIN_WAITING_TIME_H_
#define PAWL_WORKER_TRAIN_WAITING_TIME_H_

#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

// For the rank's thread.
struct WaitingTime {
  double seconds = 0;

  // Makes `call`, which waits for others, and counts its time.
  template <typename Call>
  absl::Status Of(Call call) {
    const MonotonicTime begin = Clock::Real().Now();
    absl::Status status = call();
    seconds += Seconds(Clock::Real().Now() - begin);
    return status;
  }
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_WAITING_TIME_H_
