#include "scheduler/placement/move_progress.h"

#include <algorithm>
#include <vector>

namespace pawl {

void MoveProgress::OnCopied(uint64_t bytes) {
  ++replicas_;
  bytes_ += bytes;
}

void MoveProgress::OnPaused(uint32_t pause_ms) {
  pauses_.push_back(pause_ms);
  if (pauses_.size() > kMaxPauses) pauses_.pop_front();
}

void MoveProgress::SetRemaining(size_t replicas, MonotonicTime now) {
  if (replicas == 0) {
    busy_since_.reset();
  } else if (!busy_since_.has_value()) {
    busy_since_ = now;
    replicas_at_start_ = replicas_;
  }
}

void MoveProgress::Fill(MonotonicTime now, MovesStatus& status) const {
  status.set_replicas_moved(replicas_);
  status.set_bytes_moved(bytes_);
  if (busy_since_.has_value() && replicas_ > replicas_at_start_) {
    status.set_seconds_left(Seconds(now - *busy_since_) * status.replicas_left() /
                            static_cast<double>(replicas_ - replicas_at_start_));
  }
  status.set_handovers(static_cast<uint32_t>(pauses_.size()));
  if (pauses_.empty()) return;
  std::vector<uint32_t> sorted(pauses_.begin(), pauses_.end());
  std::sort(sorted.begin(), sorted.end());
  status.set_pause_ms_p50(sorted[sorted.size() / 2]);
  status.set_pause_ms_p99(sorted[std::min(sorted.size() - 1, sorted.size() * 99 / 100)]);
  status.set_pause_ms_max(sorted.back());
}

void MoveProgress::Restore(const MovesStatus& stored) {
  replicas_ = stored.replicas_moved();
  bytes_ = stored.bytes_moved();
}

}  // namespace pawl
