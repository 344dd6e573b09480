#include "scheduler/state_saver.h"

#include <utility>

#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kLongWait{60};

}  // namespace

StateSaver::StateSaver(StateStore& store, uint64_t revision, Callbacks callbacks)
    : store_(store), callbacks_(std::move(callbacks)), revision_(revision), thread_([this] { Run(); }) {}

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
  while (notified_ || busy_) {
    if (!idle_.WaitUntil(mu_, deadline)) return !notified_ && !busy_;
  }
  return true;
}

void StateSaver::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      busy_ = false;
      if (!notified_) idle_.NotifyAll();
      while (!stop_ && !notified_) wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kLongWait);
      if (stop_) return;
      notified_ = false;
      busy_ = true;
    }
    const std::optional<UnsavedState> unsaved = callbacks_.take();
    if (!unsaved.has_value()) continue;
    const std::string bytes = unsaved->state.SerializeAsString();
    ++revision_;
    while (true) {
      const absl::Status status = store_.Save(revision_, bytes);
      if (status.ok()) break;
      if (absl::IsAborted(status)) {
        spdlog::error("the scheduler's state cannot be saved: {}", status.ToString());
        callbacks_.lost(status);
        return;
      }
      spdlog::warn("the scheduler's state cannot be saved, and nothing new is told until it is: {}", status.ToString());
      MutexLock lock(mu_);
      if (!stop_) wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kSaveRetryInterval);
      if (stop_) return;
    }
    callbacks_.saved(unsaved->change);
  }
}

}  // namespace pawl
