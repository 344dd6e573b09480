// Polls for conditions that no event reports.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_EVENTUALLY_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_EVENTUALLY_H_

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>

#include "client_lib/base/clock.h"

namespace pawl {

// Far longer than any condition takes, even on a busy machine.
inline constexpr std::chrono::seconds kTestPatience{30};

// Calls `look` until it returns something true (a bool, an optional, a pointer) or `patience` has
// passed, and returns its last result. Calls it at least once, frequently at first and every few
// milliseconds later.
template <typename Look>
std::invoke_result_t<Look&> Eventually(Look look, MonotonicDuration patience = kTestPatience) {
  constexpr MonotonicDuration kFirstPause = std::chrono::microseconds(200);
  constexpr MonotonicDuration kMaxPause = std::chrono::milliseconds(5);
  const MonotonicTime deadline = Clock::Real().Now() + patience;
  for (MonotonicDuration pause = kFirstPause;; pause = std::min(2 * pause, kMaxPause)) {
    auto seen = look();
    if (seen || Clock::Real().Now() >= deadline) return seen;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_EVENTUALLY_H_
