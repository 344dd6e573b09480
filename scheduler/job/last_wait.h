// How long a scheduler that was asked to end waits for what it still has to do.
#ifndef PAWL_SCHEDULER_JOB_LAST_WAIT_H_
#define PAWL_SCHEDULER_JOB_LAST_WAIT_H_

#include <chrono>

#include "client_lib/base/clock.h"

namespace pawl {

// How long the last states may take to be saved before the process ends without.
inline constexpr std::chrono::seconds kLastSaveTimeout{10};
// How long the result may take to be written: all else is done then, and who ended now would have
// the end all done again.
inline constexpr std::chrono::seconds kLastReportTimeout{60};

// From the moment at which the process was asked to end. Time is passed in. Not thread-safe.
class LastWait {
 public:
  explicit LastWait(MonotonicTime asked) : asked_(asked), saving_since_(asked) {}

  // Whether it has waited long enough; to be asked again and again. `writes_report`: the job's end
  // is decided, and its result is being written. After that there is a state to be saved once more.
  bool IsOver(MonotonicTime now, bool writes_report) {
    if (!writes_report) return now - saving_since_ > kLastSaveTimeout;
    saving_since_ = now;
    return now - asked_ > kLastReportTimeout;
  }

 private:
  const MonotonicTime asked_;
  MonotonicTime saving_since_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_LAST_WAIT_H_
