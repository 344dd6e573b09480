// How fast snapshots are sent.
#ifndef PAWL_SERVER_REPLICATION_REPAIR_PACE_H_
#define PAWL_SERVER_REPLICATION_REPAIR_PACE_H_

#include <algorithm>
#include <cstddef>

#include "client_lib/base/clock.h"

namespace pawl {

// Additive increase, multiplicative decrease by how long a server takes for what it is sent: a
// piece, or a replication request, that takes much longer than the quickest has waited behind other
// work for a link, a disk or a processor. Not thread-safe.
class RepairPace {
 public:
  // `most`: bytes a second that are never exceeded.
  explicit RepairPace(double most) : most_(most), rate_(std::min(most, kFirstBytesPerS)) {}

  double bytes_per_s() const { return rate_; }

  // A piece of `bytes` that was sent at `sent` has been answered.
  void OnPiece(size_t bytes, MonotonicTime sent, MonotonicTime now) {
    const MonotonicDuration took = now - sent;
    // The quickest of late: it is forgotten slowly, since machines change.
    quickest_ =
        std::min(took, quickest_ == MonotonicDuration::max() ? took : quickest_ + quickest_ / 64);
    if (took > kSlowFactor * quickest_ + kSlack) return Slow(now);
    // As fast as it was used alone: a rate that nobody reaches says nothing.
    rate_ = std::min(
        most_, rate_ + (has_slowed_ ? kIncrease : kFirstIncrease) * static_cast<double>(bytes));
  }
  // The same of a replication request, for which pushes wait.
  void OnReplication(MonotonicDuration took, MonotonicTime now) {
    if (took > kSlowReplication) Slow(now);
  }

 private:
  static constexpr double kFirstBytesPerS = 64 << 20;
  static constexpr double kLeastBytesPerS = 4 << 20;
  // The rate grows by a factor of e^kIncrease a second; at first faster, to find what there is.
  static constexpr double kFirstIncrease = 6;
  static constexpr double kIncrease = 1;
  static constexpr double kDecrease = 0.7;
  static constexpr int kSlowFactor = 4;
  static constexpr std::chrono::milliseconds kSlack{20};
  static constexpr std::chrono::milliseconds kSlowReplication{100};
  // What has slowed down for one piece is not slowed down for those that were under way with it.
  static constexpr std::chrono::milliseconds kPatience{100};

  void Slow(MonotonicTime now) {
    if (now - slowed_ < kPatience) return;
    slowed_ = now;
    has_slowed_ = true;
    rate_ = std::max(std::min(most_, kLeastBytesPerS), kDecrease * rate_);
  }

  const double most_;
  double rate_;
  MonotonicDuration quickest_ = MonotonicDuration::max();
  bool has_slowed_ = false;
  MonotonicTime slowed_ = MonotonicTime(MonotonicDuration::zero());
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPAIR_PACE_H_
