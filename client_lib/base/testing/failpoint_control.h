// What happens at the failpoints of a test binary.
//
// To link this library is what arms a binary; production targets cannot, for it is testonly. The
// environment's PAWL_FAILPOINTS is read before main; a wrong one ends the process with code 2.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_FAILPOINT_CONTROL_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_FAILPOINT_CONTROL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pawl {

// Replaces what is armed and begins to count hits from 0. `spec` is a list of NAME=ACTION[@N],
// separated by ';'; N is from 1 up and means the N-th hit alone, without it every hit does it.
// Actions:
//
//   crash      the process ends as by kill -9, after one line to stderr
//   pause:MS   the thread sleeps for MS milliseconds, at most kMaxPauseMs
//   error      FailpointHit returns true
//
// "log.sync=error@2;ack.sending=crash@100". Empty: nothing is armed. INVALID_ARGUMENT: nothing has
// changed. Thread-safe.
absl::Status ArmFailpoints(absl::string_view spec);

// How often each failpoint has been passed, armed or not. Thread-safe.
std::map<std::string, uint64_t> FailpointHits();

// Longer than any lease or deadline under test.
inline constexpr uint64_t kMaxPauseMs = 600000;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_FAILPOINT_CONTROL_H_
