// Which term's primary wrote which entries of a partition's log.
#ifndef PAWL_SERVER_SHARD_TERM_HISTORY_H_
#define PAWL_SERVER_SHARD_TERM_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pawl {

// The terms of older runs are forgotten. A replica that lacks so many terms gets a snapshot.
inline constexpr size_t kMaxTermRuns = 64;

// The entries from `first_index` to the next run are of `term`.
struct TermRun {
  uint64_t first_index = 0;
  uint64_t term = 0;

  friend bool operator==(const TermRun&, const TermRun&) = default;
};

// Runs of entries of one term. First indices and terms both ascend. The term of an entry before the
// first run is unknown, which is 0. Not thread-safe.
class TermHistory {
 public:
  // The entries from `first_index` on are of `term`. It replaces a last run that begins at the same
  // index, which has no entries. False: `term` is 0 or `first_index` lower than that of the last
  // run, or `term` lower than the last one.
  bool Begin(uint64_t first_index, uint64_t term);

  // 0: unknown.
  uint64_t TermOf(uint64_t index) const;
  uint64_t last_term() const { return runs_.empty() ? 0 : runs_.back().term; }
  const std::vector<TermRun>& runs() const { return runs_; }

 private:
  std::vector<TermRun> runs_;
};

// The largest index at which two logs, which end at `a_last` and `b_last`, have an entry of the
// same known term; 0: none. One primary writes the entries of a term, each after the one before it:
// so both logs are the same up to there.
uint64_t LastSharedIndex(const TermHistory& a, uint64_t a_last, const TermHistory& b,
                         uint64_t b_last);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TERM_HISTORY_H_
