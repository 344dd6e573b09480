// How stale gradients are when they are applied.
#ifndef PAWL_CLIENT_LIB_DAEMON_PULL_MARKS_H_
#define PAWL_CLIENT_LIB_DAEMON_PULL_MARKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pawl {

// Ranks whose gradients are measured. Each takes 32 bytes in every partition.
inline constexpr uint32_t kMeasuredRanks = 64;

// Remembers, for a partition, how many steps its logical workers had ended when each rank's latest
// pulls were answered. Not part of the partition's state: a new primary starts without marks, and
// what it cannot tell it does not count. Not thread-safe.
class PullMarks {
 public:
  // The pull of the next step is answered while the present one is computed, and may overtake the
  // end of the step before.
  static constexpr size_t kPullsAhead = 2;

  // Some logical worker has ended a step.
  void OnStepEnded() { ++steps_ended_; }

  // A pull of the rank for `step` is answered. The latest answer counts.
  void OnPull(uint32_t rank, uint64_t step) {
    if (rank >= kMeasuredRanks) return;
    if (marks_.size() <= rank) marks_.resize(rank + 1);
    marks_[rank][step % kPullsAhead] = {step, steps_ended_};
  }

  // Gradients of the step, computed from what that pull read, are applied: how many steps of all
  // logical workers have ended since. Nullopt: unknown, or already told.
  std::optional<uint64_t> OnPush(uint32_t rank, uint64_t step) {
    if (rank >= marks_.size()) return std::nullopt;
    Mark& mark = marks_[rank][step % kPullsAhead];
    if (mark.step != step) return std::nullopt;
    mark.step = kNone;
    return steps_ended_ - mark.steps_ended;
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;
  struct Mark {
    uint64_t step = kNone;
    uint64_t steps_ended = 0;
  };

  uint64_t steps_ended_ = 0;
  std::vector<std::array<Mark, kPullsAhead>> marks_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_PULL_MARKS_H_
