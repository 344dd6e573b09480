#include "worker/progress_board.h"

#include <algorithm>
#include <utility>

namespace pawl {
namespace {

// What a step still counts for after one more: half of the mean loss comes from the last 14 steps.
constexpr double kDecay = 0.95;

}  // namespace

ProgressBoard::ProgressBoard(std::vector<uint64_t> first_steps, uint64_t steps_total,
                             std::function<void(const WorkerProgress&)> publish)
    : steps_total_(steps_total), publish_(std::move(publish)), steps_(std::move(first_steps)) {
  MutexLock lock(mu_);
  publish_(ProgressLocked());
}

void ProgressBoard::StepEnded(size_t index, uint64_t samples, double loss_sum) {
  MutexLock lock(mu_);
  ++steps_[index];
  samples_ += samples;
  if (samples > 0) {
    recent_samples_ = kDecay * recent_samples_ + static_cast<double>(samples);
    recent_loss_sum_ = kDecay * recent_loss_sum_ + loss_sum;
  }
  publish_(ProgressLocked());
}

WorkerProgress ProgressBoard::progress() const {
  MutexLock lock(mu_);
  return ProgressLocked();
}

WorkerProgress ProgressBoard::ProgressLocked() const {
  WorkerProgress progress;
  if (!steps_.empty()) {
    const auto [min, max] = std::minmax_element(steps_.begin(), steps_.end());
    progress.set_steps_min(*min);
    progress.set_steps_max(*max);
  }
  progress.set_samples(samples_);
  if (recent_samples_ > 0) progress.set_loss(recent_loss_sum_ / recent_samples_);
  progress.set_steps_total(steps_total_);
  return progress;
}

}  // namespace pawl
