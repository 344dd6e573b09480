// Controls the failpoints of a test binary.
//
// Failpoints work only in binaries that link this library. Production targets cannot: it is
// testonly. The environment variable PAWL_FAILPOINTS is read before main; an invalid one ends the
// process with code 2.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_FAILPOINT_CONTROL_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_FAILPOINT_CONTROL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pawl {

// Replaces the armed failpoints and resets the hit counts. `spec` is a list of NAME=ACTION[@N],
// separated by ';'. N (from 1) restricts the action to the N-th hit; without it every hit triggers
// the action. Actions:
//
//   crash      the process dies as by kill -9, after one line to stderr
//   pause:MS   the thread sleeps for MS milliseconds, at most kMaxPauseMs
//   error      FailpointHit returns true
//
// Example: "log.sync=error@2;ack.sending=crash@100". The empty spec arms nothing. INVALID_ARGUMENT
// changes nothing. Thread-safe.
absl::Status ArmFailpoints(absl::string_view spec);

// The number of hits of each failpoint, armed or not. Thread-safe.
std::map<std::string, uint64_t> FailpointHits();

// Longer than any lease or deadline under test.
inline constexpr uint64_t kMaxPauseMs = 600000;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_FAILPOINT_CONTROL_H_
