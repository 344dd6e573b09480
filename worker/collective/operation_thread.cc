#include "worker/collective/operation_thread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// The thread is woken when there is work; this bounds its idle waits.
constexpr std::chrono::seconds kIdleWait{60};

}  // namespace

OperationThread::OperationThread(std::function<void()> begin, std::function<void()> interrupt)
    : interrupt_(std::move(interrupt)), thread_([this, begin = std::move(begin)] {
        if (begin != nullptr) begin();
        Run();
      }) {}

OperationThread::~OperationThread() { Stop(); }

void OperationThread::Stop() {
  Abort(absl::CancelledError("the collective is being destroyed"));
  {
    MutexLock lock(mu_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void OperationThread::Add(MonotonicDuration timeout, Operation operation, Collective::Done done) {
  {
    MutexLock lock(mu_);
    if (queue_.size() < kMaxQueuedOperations) {
      queue_.push_back({std::min<MonotonicDuration>(timeout, kMaxOperationTimeout),
                        std::move(operation), std::move(done)});
      changed_.NotifyAll();
      return;
    }
  }
  // The other members may have started the operation, so they are out of step.
  done(RecordFailure(absl::ResourceExhaustedError(
      absl::StrCat(kMaxQueuedOperations, " operations are queued, which is the limit"))));
}

void OperationThread::Abort(const absl::Status& reason) { RecordFailure(reason).IgnoreError(); }

absl::Status OperationThread::status() const {
  MutexLock lock(mu_);
  return failure_;
}

absl::Status OperationThread::RecordFailure(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (!failure_.ok()) return failure_;
    failure_ = status;
  }
  interrupt_();
  return status;
}

absl::Status OperationThread::RunOne(Entry& entry) {
  if (absl::Status failure = this->status(); !failure.ok()) return failure;
  const absl::Status status = entry.operation(Clock::Real().Now() + entry.timeout);
  // Errors after a successful operation do not change its result.
  return status.ok() ? status : RecordFailure(status);
}

void OperationThread::Run() {
  while (true) {
    Entry entry;
    {
      MutexLock lock(mu_);
      while (queue_.empty()) {
        if (ending_) return;
        changed_.WaitUntil(mu_, Clock::Real().Now() + kIdleWait);
      }
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    absl::Status status = RunOne(entry);
    // Release what the operation holds of the caller's before the caller is notified.
    entry.operation = nullptr;
    entry.done(std::move(status));
  }
}

}  // namespace pawl
