#include "worker/process/progress_board.h"

#include <algorithm>
#include <utility>

namespace pawl {
namespace {

// The weight of a step relative to the next one: half of the mean loss comes from the last 14
// steps.
constexpr double kDecay = 0.95;

}  // namespace

ProgressBoard::ProgressBoard(uint64_t steps_total,
                             std::function<void(const WorkerProgress&)> publish)
    : steps_total_(steps_total), publish_(std::move(publish)) {
  MutexLock lock(mu_);
  publish_(ProgressLocked());
}

void ProgressBoard::AddRank(uint32_t rank, uint64_t steps, uint64_t samples) {
  MutexLock lock(mu_);
  ranks_[rank] = {.hosted = true, .steps = steps, .samples = samples};
  publish_(ProgressLocked());
}

void ProgressBoard::RemoveRank(uint32_t rank) {
  MutexLock lock(mu_);
  ranks_.at(rank).hosted = false;
  publish_(ProgressLocked());
}

void ProgressBoard::OnStepEnded(uint32_t rank, uint64_t samples, double loss_sum) {
  MutexLock lock(mu_);
  Rank& done = ranks_.at(rank);
  ++done.steps;
  done.samples += samples;
  samples_ += samples;
  if (samples > 0) {
    recent_samples_ = kDecay * recent_samples_ + static_cast<double>(samples);
    recent_loss_sum_ = kDecay * recent_loss_sum_ + loss_sum;
  }
  publish_(ProgressLocked());
}

void ProgressBoard::AddTime(double training_s, double waiting_s) {
  MutexLock lock(mu_);
  training_s_ += training_s;
  waiting_s_ += waiting_s;
}

WorkerProgress ProgressBoard::progress() const {
  MutexLock lock(mu_);
  return ProgressLocked();
}

WorkerProgress ProgressBoard::ProgressLocked() const {
  WorkerProgress progress;
  bool hosts_any = false;
  for (const auto& [number, rank] : ranks_) {
    RankProgress& to = *progress.add_ranks();
    to.set_rank(number);
    to.set_steps(rank.steps);
    to.set_samples(rank.samples);
    if (!rank.hosted) continue;
    progress.set_steps_min(hosts_any ? std::min(progress.steps_min(), rank.steps) : rank.steps);
    progress.set_steps_max(std::max(progress.steps_max(), rank.steps));
    hosts_any = true;
  }
  progress.set_samples(samples_);
  if (recent_samples_ > 0) progress.set_loss(recent_loss_sum_ / recent_samples_);
  progress.set_steps_total(steps_total_);
  progress.set_training_s(training_s_);
  progress.set_waiting_s(waiting_s_);
  return progress;
}

}  // namespace pawl
