// A clock that counts only the time in which this process runs.
#ifndef PAWL_SCHEDULER_JOB_RUNNING_CLOCK_H_
#define PAWL_SCHEDULER_JOB_RUNNING_CLOCK_H_

#include "client_lib/base/clock.h"

namespace pawl {

// Stands still while this process does not run (it is stopped, or its machine is suspended or
// overloaded): messages sent meanwhile are unread, so no node is late. The owner reads the clock
// frequently; an interval above longest_silence between two readings counts as a pause. Not
// thread-safe.
class RunningClock {
 public:
  // `clock` outlives it.
  RunningClock(const Clock& clock, MonotonicDuration longest_silence)
      : clock_(clock), longest_silence_(longest_silence), last_(clock.LeaseNow()) {}

  MonotonicTime Now() {
    const MonotonicTime now = clock_.LeaseNow();
    const MonotonicDuration gap = now - last_;
    last_ = now;
    if (gap > longest_silence_) {
      paused_ += gap;
      last_pause_ = gap;
    }
    return now - paused_;
  }

  // Does not count as a reading.
  MonotonicTime Peek() const {
    const MonotonicTime now = clock_.LeaseNow();
    return (now - last_ > longest_silence_ ? last_ : now) - paused_;
  }

  // The last pause since the previous call; zero if there was none.
  MonotonicDuration TakePause() {
    const MonotonicDuration pause = last_pause_;
    last_pause_ = MonotonicDuration::zero();
    return pause;
  }

 private:
  const Clock& clock_;
  const MonotonicDuration longest_silence_;
  MonotonicTime last_;
  MonotonicDuration paused_{};
  MonotonicDuration last_pause_{};
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_RUNNING_CLOCK_H_
