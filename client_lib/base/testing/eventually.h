// How tests wait for what others bring about and nobody announces; where a look is dear, as in a
// storm, at intervals of their own.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_EVENTUALLY_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_EVENTUALLY_H_

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>

#include "client_lib/base/clock.h"

namespace pawl {

// Far too long for whatever is waited for, on however busy a machine: who has waited for so long
// has failed.
inline constexpr std::chrono::seconds kTestPatience{30};

// Looks again and again, until `look` returns something that is true (a bool, an optional, a
// pointer) or `patience` is over; returns the last that it returned. Looks once at least, often at
// first and every few milliseconds later.
template <typename Look>
std::invoke_result_t<Look&> Eventually(Look look, MonotonicDuration patience = kTestPatience) {
  constexpr MonotonicDuration kFirstPause = std::chrono::microseconds(200);
  constexpr MonotonicDuration kLongestPause = std::chrono::milliseconds(5);
  const MonotonicTime deadline = Clock::Real().Now() + patience;
  for (MonotonicDuration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto seen = look();
    if (seen || Clock::Real().Now() >= deadline) return seen;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_EVENTUALLY_H_
