#include "scheduler/checkpoint/checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"

namespace pawl {
namespace {

constexpr size_t kMaxFailureBytes = 512;
constexpr size_t kMaxDirBytes = 4096;

}  // namespace

std::string Checkpoints::Order::Text() const {
  return absl::StrCat(is_final ? "checkpoint of the job's end, step " : "checkpoint of step ",
                      step);
}

absl::StatusOr<std::string> Checkpoints::DirOf(absl::string_view dir) const {
  if (dir.empty() && policy_.dir().empty()) {
    return absl::FailedPreconditionError(
        "the job's checkpoint.dir is empty; name a folder with --dir");
  }
  if (dir.empty()) return policy_.dir();
  if (dir.front() != '/' || dir.size() > kMaxDirBytes || HasControlCharacters(dir)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dir is '", BoundedText(dir, kMaxFailureBytes),
        "'; it must be an absolute path of at most ", kMaxDirBytes,
        " bytes, without control characters, which all servers and the scheduler see"));
  }
  return std::string(dir);
}

absl::Status Checkpoints::Request(const std::string& dir) {
  if (in_progress_.has_value() && in_progress_->dir == dir) {
    in_progress_->urgent = true;
    return absl::OkStatus();
  }
  if (std::find(wanted_.begin(), wanted_.end(), dir) != wanted_.end()) return absl::OkStatus();
  if (wanted_.size() == kMaxWantedFolders) {
    return absl::ResourceExhaustedError(absl::StrCat("checkpoints are requested in ",
                                                     kMaxWantedFolders,
                                                     " folders, the limit; try again later"));
  }
  wanted_.push_back(dir);
  return absl::OkStatus();
}

void Checkpoints::Withdraw(const std::string& dir) {
  wanted_.erase(std::remove(wanted_.begin(), wanted_.end(), dir), wanted_.end());
  // A checkpoint in the job's own folder may be due anyway.
  if (in_progress_.has_value() && in_progress_->dir == dir && dir != policy_.dir())
    in_progress_->urgent = false;
}

void Checkpoints::NoteProgress(MonotonicTime now, uint64_t step) {
  if (!std::exchange(seen_, true) || step < second_step_) {
    second_start_ = now;
    second_step_ = step;
    return;
  }
  const double seconds = Seconds(now - second_start_);
  if (seconds < 1) return;
  steps_per_s_ = static_cast<uint64_t>(static_cast<double>(step - second_step_) / seconds);
  second_start_ = now;
  second_step_ = step;
}

uint64_t Checkpoints::RoundUp(uint64_t step) const {
  const uint64_t beyond = step % step_multiple_;
  return beyond == 0 ? step : step + (step_multiple_ - beyond);
}

std::optional<uint64_t> Checkpoints::DueStep(uint64_t step) const {
  const uint64_t every = policy_.every_steps();
  if (every == 0) return std::nullopt;
  const uint64_t after = std::max(step + lead_, last_asked_);
  // The multiple before `after` may be rounded up to a step after it.
  uint64_t due = RoundUp(after / every * every);
  if (due <= after) due = RoundUp((after / every + 1) * every);
  // Not much earlier: another request may come first.
  if (due > after + std::max(kCheckpointReach, steps_per_s_.value_or(0))) return std::nullopt;
  return due;
}

std::optional<Checkpoints::Order> Checkpoints::Next(MonotonicTime now, uint64_t step,
                                                    uint64_t last_step) {
  NoteProgress(now, step);
  if (in_progress_.has_value() || late_at_ == step) return std::nullopt;
  // No cut lies after the end of the training.
  const auto within = [&](uint64_t wanted) { return last_step == 0 || wanted <= last_step; };
  // The job's folder gets the last step from the final checkpoint, if its parameters are the same.
  const auto before_end = [&](uint64_t wanted) {
    return last_step == 0 || wanted < last_step || (!end_is_as_trained_ && wanted == last_step);
  };
  uint64_t soon = RoundUp(std::max(step + lead_, last_asked_) + 1);
  if (last_step > step && last_step > last_asked_) soon = std::min(soon, last_step);
  const auto begin = [&](uint64_t at, std::string dir, bool urgent) {
    last_asked_ = at;
    known_step_ = step;
    const bool is_own = dir == policy_.dir();
    in_progress_ = Order{.step = at,
                         .dir = std::move(dir),
                         .keep = is_own ? policy_.keep() : 0,
                         .urgent = urgent,
                         .is_periodic = is_own && (!urgent || missed_)};
    if (is_own) {
      last_started_ = now;
      missed_ = false;
    }
    return in_progress_;
  };
  if (!wanted_.empty() && within(soon)) {
    std::string dir = std::move(wanted_.front());
    wanted_.pop_front();
    return begin(soon, std::move(dir), true);
  }
  const std::optional<uint64_t> due = DueStep(step);
  if (due.has_value() && before_end(*due)) return begin(*due, policy_.dir(), false);
  const bool time_is_over = policy_.every_seconds() > 0 &&
                            now - last_started_ >= std::chrono::seconds(policy_.every_seconds());
  // The next one by steps, or by time, is as good as a missed one.
  const bool wants_soon = time_is_over || (missed_ && now >= repeat_after_ && !due.has_value());
  if (wants_soon && before_end(soon)) return begin(soon, policy_.dir(), false);
  return std::nullopt;
}

uint64_t Checkpoints::LongestLead() const {
  if (!steps_per_s_.has_value()) return kMaxCheckpointLead;
  // steps_per_s_ is rounded down.
  const uint64_t in_time =
      (*steps_per_s_ + 1) * static_cast<uint64_t>(kMaxCheckpointLeadTime.count());
  return std::min(in_time, kMaxCheckpointLead);
}

void Checkpoints::OnTooLate(MonotonicTime now) {
  late_at_ = known_step_;
  lead_ = std::max(lead_, std::min(lead_ * 2, LongestLead()));
  in_time_ = 0;
  OnMoved(now);
}

void Checkpoints::OnMoved(MonotonicTime now) {
  const std::optional<Order> order = std::exchange(in_progress_, std::nullopt);
  if (!order.has_value()) return;
  if (order->is_periodic) {
    missed_ = true;
    repeat_after_ = now + kMissedCheckpointPause;
  }
  if (!order->urgent) return;
  // First in the queue: it has waited longest.
  wanted_.erase(std::remove(wanted_.begin(), wanted_.end(), order->dir), wanted_.end());
  wanted_.push_front(order->dir);
}

void Checkpoints::OnFailed(const absl::Status& why) {
  in_progress_.reset();
  status_.set_failed(status_.failed() + 1);
  status_.set_last_failure(BoundedText(why.ToString(), kMaxFailureBytes));
}

bool Checkpoints::IsInProgress(const Order& order) const {
  return in_progress_.has_value() && in_progress_->step == order.step &&
         in_progress_->dir == order.dir && in_progress_->is_final == order.is_final;
}

void Checkpoints::OnCompleted(const Order& order, const std::string& folder, uint64_t unix_ms) {
  status_.set_completed(status_.completed() + 1);
  status_.set_last_step(order.step);
  status_.set_last_folder(folder);
  status_.set_last_unix_ms(unix_ms);
  if (order.is_final) SetEndFolder(folder);
  if (!IsInProgress(order)) return;
  in_progress_.reset();
  // The lead may be larger than necessary.
  if (++in_time_ < kCheckpointsBeforeLessLead) return;
  in_time_ = 0;
  lead_ = std::max<uint64_t>(lead_ / 2, 1);
}

Checkpoints::Order Checkpoints::BeginEnd(uint64_t step) {
  last_asked_ = step;
  in_progress_ = Order{
      .step = step, .dir = policy_.dir(), .keep = policy_.keep(), .urgent = true, .is_final = true};
  return *in_progress_;
}

void Checkpoints::OnEndFailed(const absl::Status& why) {
  OnFailed(why);
  status_.set_end_failure(status_.last_failure());
}

void Checkpoints::Abandon() {
  in_progress_.reset();
  missed_ = false;
  wanted_.clear();
}

CheckpointStatus Checkpoints::Status() const {
  CheckpointStatus status = status_;
  if (in_progress_.has_value()) status.set_in_progress_step(in_progress_->step);
  status.set_repeats_periodic(missed_ || (in_progress_.has_value() && in_progress_->is_periodic));
  return status;
}

void Checkpoints::Restore(const CheckpointStatus& stored) {
  status_ = stored;
  // The checkpoint in progress may exist or not. Its step is not requested again. A later one is if
  // it was periodic; callers ask again for theirs.
  missed_ = stored.repeats_periodic();
  last_asked_ = std::max(stored.in_progress_step(), stored.last_step());
  status_.clear_in_progress_step();
  status_.clear_repeats_periodic();
}

}  // namespace pawl
