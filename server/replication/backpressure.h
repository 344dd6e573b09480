// Back-pressure: how fast a partition may be pushed to while a learner catches up, how fast
// snapshots are sent, and the refusal that tells a sender to retry later.
//
// The functions and classes here decide; Replica measures, Replicator and DataPlane act.
#ifndef PAWL_SERVER_REPLICATION_BACKPRESSURE_H_
#define PAWL_SERVER_REPLICATION_BACKPRESSURE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// How long a refused sender is told to wait before it retries.
inline constexpr int kPushbackMs = 20;

// RESOURCE_EXHAUSTED with the message of `status` and kPushbackMs as the time to wait.
inline absl::Status WithPushback(const absl::Status& status) {
  absl::Status result(absl::StatusCode::kResourceExhausted, status.message());
  result.SetPayload(kPushbackPayloadUrl, absl::Cord(absl::StrCat(kPushbackMs)));
  return result;
}

// Moves and repairs end only if a partition is not pushed to faster than its learner can follow.
// Pushes are therefore delayed before they are applied. A refused push is transferred again, and a
// delayed acknowledgement does not bound the entries held for the learner. So pushes are refused
// only when a delay does not suffice.

// Pushes are not slowed before the backlog exceeds this share of its bound. Then they are slowed
// until it is nearly empty.
inline constexpr double kUnbrakedShare = 0.25;
// Pushes fill the backlog up to this share while the snapshot travels; the rest is for pushes that
// are already in flight.
inline constexpr double kSnapshotShare = 0.875;
// Pushes get this share of the rate at which a learner drains its backlog, so that it empties.
inline constexpr double kPushShare = 0.8;
// The brake never limits pushes to less than this rate; beyond the bound pushes are refused.
inline constexpr double kMinPushBytesPerS = 4 << 20;
// The assumed drain rate of a learner that got no snapshot, before the first measurement.
inline constexpr double kUnknownDrainBytesPerS = 32 << 20;
// The longest delay of a push. A push that would wait longer is refused and retried.
inline constexpr std::chrono::milliseconds kMaxPushDelay{500};
// The least time that the rest of a snapshot's transfer is assumed to take.
inline constexpr std::chrono::milliseconds kMinInstallTime{250};

// The bytes per second that pushes may add during the transfer of a snapshot that ends at `end`.
inline double PushRateDuringInstall(size_t backlog, size_t bound, MonotonicTime now,
                                    MonotonicTime end, double least = kMinPushBytesPerS) {
  const double room = kSnapshotShare * static_cast<double>(bound) - static_cast<double>(backlog);
  // An unknown end is far away.
  const MonotonicDuration left = end == MonotonicTime::max()
                                     ? std::chrono::seconds(1)
                                     : std::max<MonotonicDuration>(end - now, kMinInstallTime);
  return std::max(least, room / Seconds(left));
}

// The same while a learner drains its backlog at `drain` bytes per second.
inline double PushRateDuringDrain(double drain, double least = kMinPushBytesPerS) {
  return std::max(least, kPushShare * drain);
}

// A rate as the mean of recent intervals; older ones count less and less. Not thread-safe.
class RecentRate {
 public:
  // `weight`: that of the latest interval. Shorter intervals than `least_seconds` are joined.
  RecentRate(double least_seconds, double weight)
      : least_seconds_(least_seconds), weight_(weight) {}

  // `bytes`: the total until now.
  void Sample(uint64_t bytes, MonotonicTime now) {
    if (!sampled_at_.has_value()) {
      sampled_at_ = now;
      bytes_ = bytes;
      return;
    }
    const double seconds = Seconds(now - *sampled_at_);
    if (seconds < least_seconds_) return;
    const double rate = static_cast<double>(bytes - std::min(bytes_, bytes)) / seconds;
    bytes_per_s_ =
        bytes_per_s_.has_value() ? *bytes_per_s_ + weight_ * (rate - *bytes_per_s_) : rate;
    sampled_at_ = now;
    bytes_ = bytes;
  }
  // Nullopt before the second sample.
  std::optional<double> bytes_per_s() const { return bytes_per_s_; }

 private:
  double least_seconds_;
  double weight_;
  uint64_t bytes_ = 0;
  std::optional<MonotonicTime> sampled_at_;
  std::optional<double> bytes_per_s_;
};

// Measures how fast a backlog drains, from samples of its size. Not thread-safe.
class DrainRate {
 public:
  void OnAppended(size_t bytes) { appended_ += bytes; }
  // `left`: the size of the backlog now, in bytes.
  void Sample(size_t left, MonotonicTime now) {
    rate_.Sample(appended_ - std::min<uint64_t>(left, appended_), now);
  }
  std::optional<double> bytes_per_s() const { return rate_.bytes_per_s(); }

 private:
  uint64_t appended_ = 0;
  RecentRate rate_{/*least_seconds=*/0.02, /*weight=*/0.5};
};

// Delays pushes to limit their rate. Not thread-safe.
class PushBrake {
 public:
  // How long a push of `bytes` must wait at `rate`. Nullopt: longer than kMaxPushDelay; the push
  // then gets no slot.
  std::optional<MonotonicDuration> Take(size_t bytes, double rate, MonotonicTime now) {
    const MonotonicTime turn = std::max(free_from_, now);
    if (turn - now > kMaxPushDelay) return std::nullopt;
    const double seconds = std::min(static_cast<double>(bytes) / rate, kMaxTurnS);
    free_from_ = turn + std::chrono::duration_cast<MonotonicDuration>(
                            std::chrono::duration<double>(seconds));
    return turn - now;
  }

 private:
  // The longest time for which one push occupies the partition.
  static constexpr double kMaxTurnS = 0.08;

  MonotonicTime free_from_ = MonotonicTime::min();
};

// While processors are scarce, snapshots travel no faster than this, since a copy takes processor
// time from pushes. Processors are scarce if threads wait for one more than kBusyShare of the time.
inline constexpr double kBusyRepairBytesPerS = 64 << 20;
inline constexpr double kBusyShare = 0.5;

// The rate at which snapshots are sent: additive increase, multiplicative decrease, by response
// time. A piece or a replication request that takes much longer than the fastest one has queued
// behind other work for a link, a disk or a processor. Not thread-safe.
class RepairPace {
 public:
  // `most`: the rate that is never exceeded, in bytes per second.
  explicit RepairPace(double most) : most_(most), rate_(std::min(most, kFirstBytesPerS)) {}

  double bytes_per_s() const { return rate_; }

  // A piece of `bytes` that was sent at `sent` has been answered.
  void OnPiece(size_t bytes, MonotonicTime sent, MonotonicTime now) {
    const MonotonicDuration took = now - sent;
    // The fastest recent response. It decays slowly, since machines change.
    quickest_ =
        std::min(took, quickest_ == MonotonicDuration::max() ? took : quickest_ + quickest_ / 64);
    if (took > kSlowFactor * quickest_ + kSlack) return SlowDown(now);
    // Grows in proportion to the bytes sent: a rate that is not reached proves nothing.
    rate_ = std::min(
        most_, rate_ + (has_slowed_ ? kIncrease : kFirstIncrease) * static_cast<double>(bytes));
  }
  // A replication request that pushes wait for has taken that long.
  void OnReplication(MonotonicDuration took, MonotonicTime now) {
    if (took > kSlowReplication) SlowDown(now);
  }

 private:
  static constexpr double kFirstBytesPerS = 64 << 20;
  static constexpr double kMinBytesPerS = 4 << 20;
  // The rate grows by a factor of e^kIncrease a second; at first faster, to find the capacity.
  static constexpr double kFirstIncrease = 6;
  static constexpr double kIncrease = 1;
  static constexpr double kDecrease = 0.7;
  static constexpr int kSlowFactor = 4;
  static constexpr std::chrono::milliseconds kSlack{20};
  static constexpr std::chrono::milliseconds kSlowReplication{100};
  // Pieces that were in flight together slow the rate down only once.
  static constexpr std::chrono::milliseconds kPatience{100};

  void SlowDown(MonotonicTime now) {
    if (now - slowed_ < kPatience) return;
    slowed_ = now;
    has_slowed_ = true;
    rate_ = std::max(std::min(most_, kMinBytesPerS), kDecrease * rate_);
  }

  const double most_;
  double rate_;
  MonotonicDuration quickest_ = MonotonicDuration::max();
  bool has_slowed_ = false;
  MonotonicTime slowed_ = MonotonicTime(MonotonicDuration::zero());
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_BACKPRESSURE_H_
