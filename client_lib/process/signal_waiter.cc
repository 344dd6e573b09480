#include "client_lib/process/signal_waiter.h"

#include <time.h>

#include <algorithm>
#include <chrono>

namespace pawl {

SignalWaiter::SignalWaiter() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals_, signal);
  // Linux queues a blocked signal even if it is ignored, so waiting for it would undo nohup.
  struct sigaction on_hangup;
  if (sigaction(SIGHUP, nullptr, &on_hangup) != 0 || on_hangup.sa_handler != SIG_IGN)
    sigaddset(&signals_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

SignalWaiter::~SignalWaiter() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalWaiter::Wait(MonotonicDuration timeout) {
  const auto left = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(timeout));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec limit = {static_cast<time_t>(seconds.count()),
                          static_cast<long>((left - seconds).count())};
  return std::max(0, sigtimedwait(&signals_, nullptr, &limit));
}

}  // namespace pawl
