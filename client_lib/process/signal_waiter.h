// Signals as something that the main loop waits for, so that no handler interrupts anything.
#ifndef PAWL_CLIENT_LIB_PROCESS_SIGNAL_WAITER_H_
#define PAWL_CLIENT_LIB_PROCESS_SIGNAL_WAITER_H_

#include <signal.h>

#include "client_lib/base/clock.h"

namespace pawl {

// Takes SIGINT, SIGTERM, SIGHUP and SIGCHLD for itself until it is destroyed. Made on the main
// thread before any other thread starts: threads inherit that these signals are blocked. One a
// process.
class SignalWaiter {
 public:
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // The next signal, or 0 when `timeout` has passed without one. Several of one kind may come as
  // one.
  int Wait(MonotonicDuration timeout);

 private:
  sigset_t signals_;
  sigset_t before_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_SIGNAL_WAITER_H_
