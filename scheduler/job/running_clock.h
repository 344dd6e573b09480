// The time in which this process ran.
#ifndef PAWL_SCHEDULER_JOB_RUNNING_CLOCK_H_
#define PAWL_SCHEDULER_JOB_RUNNING_CLOCK_H_

#include "client_lib/base/clock.h"

namespace pawl {

// A clock that stands still while this process does not run (stopped, its machine frozen or out of
// time): what others have sent meanwhile lies unread, so nobody is late for it. It is asked all the
// time, and takes a longer silence between two questions for such a pause, a suspension of the
// machine too. Not thread-safe.
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

  // Without taking notice.
  MonotonicTime Peek() const {
    const MonotonicTime now = clock_.LeaseNow();
    return (now - last_ > longest_silence_ ? last_ : now) - paused_;
  }

  // The pause that was noticed since it was last asked for; zero if there was none.
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
