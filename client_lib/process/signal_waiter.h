// Signals as events that the main loop waits for, instead of handlers.
#ifndef PAWL_CLIENT_LIB_PROCESS_SIGNAL_WAITER_H_
#define PAWL_CLIENT_LIB_PROCESS_SIGNAL_WAITER_H_

#include <signal.h>

#include "client_lib/base/clock.h"

namespace pawl {

// Receives SIGINT, SIGTERM, SIGHUP and SIGCHLD until it is destroyed. Construct it on the main
// thread before any other thread starts, because threads inherit the blocked signals. One per
// process. If SIGHUP is ignored, as under nohup, it stays ignored.
class SignalWaiter {
 public:
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // Returns the next signal, or 0 if none comes within `timeout`. Several signals of one kind may
  // be merged.
  int Wait(MonotonicDuration timeout);

 private:
  sigset_t signals_;
  sigset_t before_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_SIGNAL_WAITER_H_
