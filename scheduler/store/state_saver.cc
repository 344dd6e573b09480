#include "scheduler/store/state_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kLongWait{60};
// The interval between two log lines about a store that keeps failing.
constexpr std::chrono::seconds kReportInterval{1};

// The sizes of a state's parts, for a state that is too large.
std::string SizesText(const SchedulerState& state) {
  return absl::StrCat("nodes ", state.membership().ByteSizeLong(), ", placement ",
                      state.placement().ByteSizeLong(), ", ranks ", state.ranks().ByteSizeLong(),
                      ", tables ", state.tables().ByteSizeLong(), ", evaluations ",
                      state.evaluations().ByteSizeLong(), ", barriers ",
                      state.barriers().ByteSizeLong(), " bytes");
}

}  // namespace

StateSaver::StateSaver(StateStore& store, uint64_t revision, Callbacks callbacks)
    : store_(store),
      callbacks_(std::move(callbacks)),
      revision_(revision),
      thread_([this] { Run(); }) {}

StateSaver::~StateSaver() {
  {
    MutexLock lock(mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

void StateSaver::Notify() {
  MutexLock lock(mu_);
  notified_ = true;
  wake_.NotifyAll();
}

bool StateSaver::WaitUntilSaved(MonotonicTime deadline) {
  MutexLock lock(mu_);
  while (notified_ || busy_since_.has_value()) {
    if (!idle_.WaitUntil(mu_, deadline)) return !notified_ && !busy_since_.has_value();
  }
  return true;
}

MonotonicDuration StateSaver::UnsavedFor() const {
  MutexLock lock(mu_);
  if (!busy_since_.has_value()) return MonotonicDuration::zero();
  return Clock::Real().Now() - *busy_since_;
}

void StateSaver::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      busy_since_.reset();
      if (!notified_) idle_.NotifyAll();
      while (!stop_ && !notified_)
        wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kLongWait);
      if (stop_) return;
      busy_since_ = Clock::Real().Now();
    }
    while (true) {
      {
        MutexLock lock(mu_);
        notified_ = false;
      }
      // Each attempt takes the newest state: one that cannot be saved must not block the next.
      const std::optional<UnsavedState> unsaved = callbacks_.take();
      if (!unsaved.has_value()) break;
      // Each attempt has a newer revision: a failed Save may have been executed.
      const absl::Status status = store_.Save(++revision_, unsaved->state.SerializeAsString());
      if (status.ok()) {
        LogSuccess();
        callbacks_.saved(unsaved->change);
        break;
      }
      if (absl::IsAborted(status)) {
        spdlog::error("the scheduler's state cannot be saved: {}", status.ToString());
        callbacks_.lost(status);
        return;
      }
      LogFailure(status, unsaved->state);
      if (!Pause()) return;
    }
  }
}

void StateSaver::LogFailure(const absl::Status& status, const SchedulerState& state) {
  ++failures_;
  const MonotonicTime now = Clock::Real().Now();
  if (failures_ > 1 && now - reported_ < kReportInterval) return;
  reported_ = now;
  spdlog::warn(
      "the scheduler's state cannot be saved; changes are announced only after it is ({} "
      "failure{}): {}{}",
      failures_, failures_ == 1 ? "" : "s", status.ToString(),
      absl::IsInvalidArgument(status) ? absl::StrCat("; ", SizesText(state)) : "");
}

void StateSaver::LogSuccess() {
  if (failures_ > 0)
    spdlog::info("the scheduler's state is saved again, after {} failures", failures_);
  failures_ = 0;
}

bool StateSaver::Pause() {
  const MonotonicTime until = Clock::Real().Now() + kSaveRetryInterval;
  MutexLock lock(mu_);
  // New changes wake the thread, too.
  while (!stop_ && Clock::Real().Now() < until) wake_.WaitUntil(mu_, until);
  return !stop_;
}

}  // namespace pawl
