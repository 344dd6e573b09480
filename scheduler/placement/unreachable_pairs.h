// Remembers the pairs of a primary and a follower that does not accept what it sends.
#ifndef PAWL_SCHEDULER_PLACEMENT_UNREACHABLE_PAIRS_H_
#define PAWL_SCHEDULER_PLACEMENT_UNREACHABLE_PAIRS_H_

#include <chrono>
#include <map>
#include <utility>

#include "client_lib/base/clock.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_step.h"

namespace pawl {

// How long after such a report the server does not become a learner of that primary again. Doubled,
// up to the maximum, by each further report soon after.
inline constexpr std::chrono::seconds kSilenceRemembered{10};
inline constexpr std::chrono::seconds kMaxSilenceRemembered{320};

// Time is passed in. Not thread-safe.
class UnreachablePairs {
 public:
  // `primary` reports that `follower` does not accept what it sends, or no snapshot of a partition.
  void Note(ServerNumber primary, ServerNumber follower, MonotonicTime now);

  // The pairs whose reports have not expired.
  SilentPairs Current(MonotonicTime now);

 private:
  struct Silence {
    // The report expires then. The entry is kept for believed_for longer.
    MonotonicTime until;
    MonotonicDuration believed_for = kSilenceRemembered;
  };

  // By (primary, follower).
  std::map<std::pair<ServerNumber, ServerNumber>, Silence> unreachable_pairs_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_UNREACHABLE_PAIRS_H_
