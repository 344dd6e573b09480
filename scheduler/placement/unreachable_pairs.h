// Which servers take nothing of which primaries.
#ifndef PAWL_SCHEDULER_PLACEMENT_UNREACHABLE_PAIRS_H_
#define PAWL_SCHEDULER_PLACEMENT_UNREACHABLE_PAIRS_H_

#include <chrono>
#include <map>
#include <utility>

#include "client_lib/base/clock.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_step.h"

namespace pawl {

// For so long after it has been said that a server takes nothing of a primary's, it is made no
// learner of that primary again; doubled, up to the second, each time that it is said once more
// soon after.
inline constexpr std::chrono::seconds kSilenceRemembered{10};
inline constexpr std::chrono::seconds kMaxSilenceRemembered{320};

// Remembers what primaries have said of servers that take nothing of theirs. Time is passed in. Not
// thread-safe.
class UnreachablePairs {
 public:
  // `primary` says that `follower` takes nothing of what it sends.
  void Note(ServerNumber primary, ServerNumber follower, MonotonicTime now);

  // Those that are believed now.
  SilentPairs Believed(MonotonicTime now);

 private:
  struct Silence {
    // It is believed until then, and remembered for once more as long.
    MonotonicTime until;
    MonotonicDuration believed_for = kSilenceRemembered;
  };

  // Primaries and who takes nothing of theirs.
  std::map<std::pair<ServerNumber, ServerNumber>, Silence> unreachable_pairs_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_UNREACHABLE_PAIRS_H_
