#include "scheduler/placement/unreachable_pairs.h"

#include <algorithm>
#include <iterator>

namespace pawl {

void UnreachablePairs::Note(ServerNumber primary, ServerNumber follower, MonotonicTime now) {
  const auto [known, is_new] = unreachable_pairs_.try_emplace({primary, follower});
  Silence& silence = known->second;
  if (!is_new && now >= silence.until) {
    silence.believed_for =
        std::min<MonotonicDuration>(2 * silence.believed_for, kMaxSilenceRemembered);
  }
  silence.until = now + silence.believed_for;
}

SilentPairs UnreachablePairs::Current(MonotonicTime now) {
  SilentPairs pairs;
  for (auto it = unreachable_pairs_.begin(); it != unreachable_pairs_.end();) {
    const Silence& silence = it->second;
    if (now < silence.until) pairs.insert(it->first);
    it = now < silence.until + silence.believed_for ? std::next(it) : unreachable_pairs_.erase(it);
  }
  return pairs;
}

}  // namespace pawl
