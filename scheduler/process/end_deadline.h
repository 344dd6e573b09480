// How long a terminating scheduler waits for its last writes.
#ifndef PAWL_SCHEDULER_PROCESS_END_DEADLINE_H_
#define PAWL_SCHEDULER_PROCESS_END_DEADLINE_H_

#include <chrono>

#include "client_lib/base/clock.h"

namespace pawl {

// How long the process waits for the last state to be saved before it exits without it.
inline constexpr std::chrono::seconds kLastSaveTimeout{10};
// How long the process waits for the report. Everything else is done by then, and a scheduler that
// exits now would have to repeat the whole end of the job.
inline constexpr std::chrono::seconds kLastReportTimeout{60};

// Starts when the process is told to end. Time is passed in. Not thread-safe.
class EndDeadline {
 public:
  explicit EndDeadline(MonotonicTime start) : start_(start), saving_since_(start) {}

  // Whether the process has waited long enough. To be called repeatedly. `writing_report`: the
  // result is known and its report is being written; the state is saved once more after that.
  bool HasPassed(MonotonicTime now, bool writing_report) {
    if (!writing_report) return now - saving_since_ > kLastSaveTimeout;
    saving_since_ = now;
    return now - start_ > kLastReportTimeout;
  }

 private:
  const MonotonicTime start_;
  MonotonicTime saving_since_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PROCESS_END_DEADLINE_H_
