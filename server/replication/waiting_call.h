// A request that waits for partitions: until they have reached its step, or until its changes are
// committed.
#ifndef PAWL_SERVER_REPLICATION_WAITING_CALL_H_
#define PAWL_SERVER_REPLICATION_WAITING_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/rpc/request_handler.h"

namespace pawl {

// Counts down the partitions that a call waits for, and runs it once: with OK when
// none is left, or with an error when it is given up. Holds no thread. Thread-safe.
class WaitingCall {
 public:
  // `resume` is run exactly once, by Resume.
  WaitingCall(CallContext context, absl::AnyInvocable<void(absl::Status)> resume)
      : context_(std::move(context)), resume_(std::move(resume)) {}

  const CallContext& context() const { return context_; }
  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // One more partition to wait for. REQUIRES: the count is above 0 (it starts at 1, the caller's
  // own).
  void Add() { count_.fetch_add(1, std::memory_order_relaxed); }

  // One partition less; true if it was the last and the caller must call Resume.
  bool Release() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  // Runs the call, unless it has run.
  void Resume(absl::Status status) {
    if (!finished_.exchange(true, std::memory_order_acq_rel))
      std::exchange(resume_, nullptr)(std::move(status));
  }

 private:
  const CallContext context_;
  std::atomic<int> count_{1};
  std::atomic<bool> finished_{false};
  absl::AnyInvocable<void(absl::Status)> resume_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_WAITING_CALL_H_
