// How fast a partition may be pushed to while a learner lacks much of it.
#ifndef PAWL_SERVER_REPLICATION_PUSH_BRAKE_H_
#define PAWL_SERVER_REPLICATION_PUSH_BRAKE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "client_lib/base/clock.h"

namespace pawl {

// A partition that a learner is to get must not be pushed to faster than the learner can follow, or
// moves and repairs would never end. Pushes are delayed before they are applied: a refusal would
// make the sender transfer them again, and a delayed acknowledgement would not bound what has to be
// kept for the learner. Refusals are left for what no delay can hold back.
//
// The functions here decide; Replica measures and DataPlane acts.

// Up to this share of the bound on a learner's backlog pushes are not slowed.
inline constexpr double kUnbrakedShare = 0.25;
// Pushes fill the backlog up to this share while the snapshot travels; the rest is for those
// already under way.
inline constexpr double kSnapshotShare = 0.875;
// Of the rate at which a learner takes its backlog, pushes get this share, so that it ends.
inline constexpr double kPushShare = 0.8;
// A brake never asks for less than this rate: the refusal at the bound does the rest.
inline constexpr double kLeastPushBytesPerS = 4 << 20;
// How fast a learner takes its backlog before that was seen.
inline constexpr double kUnknownDrainBytesPerS = 32 << 20;
// No push is delayed longer; one that would be is refused and comes again.
inline constexpr std::chrono::milliseconds kMaxPushDelay{500};
// What is left of a snapshot's transfer is taken for at least so long.
inline constexpr std::chrono::milliseconds kLeastInstallTime{250};

// Pushes may bring so many bytes a second while a snapshot travels that will have arrived at `end`.
inline double PushRateDuringInstall(size_t backlog, size_t bound, MonotonicTime now,
                                    MonotonicTime end, double least = kLeastPushBytesPerS) {
  const double room = kSnapshotShare * static_cast<double>(bound) - static_cast<double>(backlog);
  // An end that is not known yet is far away.
  const MonotonicDuration left = end == MonotonicTime::max()
                                     ? std::chrono::seconds(1)
                                     : std::max<MonotonicDuration>(end - now, kLeastInstallTime);
  return std::max(least, room / Seconds(left));
}

// The same while a learner takes its backlog at `drain` bytes a second.
inline double PushRateDuringDrain(double drain, double least = kLeastPushBytesPerS) {
  return std::max(least, kPushShare * drain);
}

// How fast a backlog goes, from looks at it. Not thread-safe.
class DrainRate {
 public:
  void OnAppended(size_t bytes) { appended_ += bytes; }
  // `left`: bytes of the backlog now.
  void Look(size_t left, MonotonicTime now) {
    const uint64_t drained = appended_ - std::min<uint64_t>(left, appended_);
    if (!looked_at_.has_value()) {
      looked_at_ = now;
      drained_ = drained;
      return;
    }
    const double seconds = Seconds(now - *looked_at_);
    if (seconds < kLeastInterval) return;
    const double rate = static_cast<double>(drained - std::min(drained_, drained)) / seconds;
    bytes_per_s_ = bytes_per_s_.has_value() ? (*bytes_per_s_ + rate) / 2 : rate;
    looked_at_ = now;
    drained_ = drained;
  }
  // Nothing before two looks.
  std::optional<double> bytes_per_s() const { return bytes_per_s_; }

 private:
  static constexpr double kLeastInterval = 0.02;

  uint64_t appended_ = 0;
  uint64_t drained_ = 0;
  std::optional<MonotonicTime> looked_at_;
  std::optional<double> bytes_per_s_;
};

// Spaces pushes so that they keep to a rate. Not thread-safe.
class PushBrake {
 public:
  // How long a push of `bytes` is to wait at `rate`; nothing if that is longer than kMaxPushDelay,
  // and then the push has no place.
  std::optional<MonotonicDuration> Take(size_t bytes, double rate, MonotonicTime now) {
    const MonotonicTime turn = std::max(free_from_, now);
    if (turn - now > kMaxPushDelay) return std::nullopt;
    const double seconds = std::min(static_cast<double>(bytes) / rate, kLongestTurnS);
    free_from_ = turn + std::chrono::duration_cast<MonotonicDuration>(
                            std::chrono::duration<double>(seconds));
    return turn - now;
  }

 private:
  // No push stops the partition for longer.
  static constexpr double kLongestTurnS = 0.08;

  MonotonicTime free_from_ = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_PUSH_BRAKE_H_
