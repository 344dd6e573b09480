#include "worker/train/batch_stream.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// A batch takes milliseconds to make, so a stream that is silent for this long hangs.
constexpr std::chrono::minutes kMaxWait{10};
// The stream's thread is woken when it is needed. It wakes by itself only to bound every wait.
constexpr std::chrono::seconds kIdleWait{1};

}  // namespace

BatchStream::BatchStream(uint64_t first, uint64_t end, Assemble assemble)
    : first_(first), end_(end), assemble_(std::move(assemble)) {
  if (first_ == end_) {
    has_ended_ = true;
    return;
  }
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    MutexLock lock(mu_);
    has_ended_ = true;
    // Other workers can host the rank: the job continues.
    status_ = absl::UnavailableError(
        absl::StrCat("cannot start a thread that reads batches: ", error.what()));
  }
}

BatchStream::~BatchStream() {
  End();
  if (thread_.joinable()) thread_.join();
}

void BatchStream::End() {
  {
    MutexLock lock(mu_);
    ending_ = true;
  }
  changed_.NotifyAll();
}

bool BatchStream::HasEnded() const {
  MutexLock lock(mu_);
  return has_ended_;
}

void BatchStream::Run() {
  MakeBatches();
  MutexLock lock(mu_);
  has_ended_ = true;
}

void BatchStream::MakeBatches() {
  for (uint64_t number = first_; number < end_; ++number) {
    Batch* batch = nullptr;
    {
      MutexLock lock(mu_);
      while (!ending_ && free_.empty() && all_.size() == kMaxBatches) {
        changed_.WaitUntil(mu_, Clock::Real().Now() + kIdleWait);
      }
      if (ending_) return;
      if (free_.empty()) {
        all_.push_back(std::make_unique<Batch>());
        batch = all_.back().get();
      } else {
        batch = free_.back();
        free_.pop_back();
      }
    }
    absl::Status status = assemble_(number, batch);
    const bool failed = !status.ok();
    {
      MutexLock lock(mu_);
      if (failed) {
        status_ = std::move(status);
      } else {
        ready_.push_back(batch);
      }
    }
    changed_.NotifyAll();
    if (failed) return;
  }
}

absl::StatusOr<Batch*> BatchStream::Next(const Interrupt& interrupt) {
  const MonotonicTime deadline = Clock::Real().Now() + kMaxWait;
  MutexLock lock(mu_);
  while (ready_.empty()) {
    if (!status_.ok()) return status_;
    if (absl::Status reason = interrupt.reason(); !reason.ok()) return reason;
    const MonotonicTime now = Clock::Real().Now();
    if (now >= deadline)
      return absl::DeadlineExceededError(
          absl::StrCat("the next batch is not ready after ", Seconds(kMaxWait), " s"));
    changed_.WaitUntil(mu_, now + kInterruptInterval);
  }
  Batch* const batch = ready_.front();
  ready_.pop_front();
  return batch;
}

void BatchStream::Release(Batch* batch) {
  {
    MutexLock lock(mu_);
    free_.push_back(batch);
  }
  changed_.NotifyAll();
}

}  // namespace pawl
