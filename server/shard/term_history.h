// The terms in which a partition's log entries were written.
#ifndef PAWL_SERVER_SHARD_TERM_HISTORY_H_
#define PAWL_SERVER_SHARD_TERM_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pawl {

// Limit on runs; older ones are dropped. A replica that is behind by more terms gets a snapshot.
inline constexpr size_t kMaxTermRuns = 64;

// The entries from `first_index` to the next run have the term `term`.
struct TermRun {
  uint64_t first_index = 0;
  uint64_t term = 0;

  friend bool operator==(const TermRun&, const TermRun&) = default;
};

// The runs of entries with the same term, ascending in first index and term. The term of an entry
// before the first run is unknown and reads as 0. Not thread-safe.
class TermHistory {
 public:
  // The entries from `first_index` on have the term. Replaces a last run that starts there: it has
  // no entries, as after a primary's term in which every request was a duplicate, and its term may
  // be higher. Returns false, and changes nothing, if `term` is 0, or if `first_index` or `term` is
  // lower than that of the last run with entries.
  bool Begin(uint64_t first_index, uint64_t term);

  // 0: unknown.
  uint64_t TermOf(uint64_t index) const;
  uint64_t last_term() const { return runs_.empty() ? 0 : runs_.back().term; }
  const std::vector<TermRun>& runs() const { return runs_; }

 private:
  std::vector<TermRun> runs_;
};

// The largest index at which two logs, ending at `a_last` and `b_last`, have an entry of the same
// known term; 0: none. Only one primary writes the entries of a term, in order, so both logs are
// equal up to that index.
uint64_t LastSharedIndex(const TermHistory& a, uint64_t a_last, const TermHistory& b,
                         uint64_t b_last);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TERM_HISTORY_H_
