// Calls that wait for partitions: until these have reached a step, or until changes are committed
// or durable.
#ifndef PAWL_SERVER_REPLICATION_WAITING_CALLS_H_
#define PAWL_SERVER_REPLICATION_WAITING_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/request_handler.h"

namespace pawl {

struct Replica;

// Counts the partitions that a call still waits for, and resumes the call once: with OK when none
// is left, or with an error when it is abandoned. Holds no thread. Thread-safe.
class WaitingCall {
 public:
  // The first call of Resume runs `resume`.
  WaitingCall(CallContext context, absl::AnyInvocable<void(absl::Status)> resume)
      : context_(std::move(context)), resume_(std::move(resume)) {}

  const CallContext& context() const { return context_; }
  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // Adds a partition to wait for. REQUIRES: the count is above 0 (it starts at 1, the caller's
  // own).
  void Add() { count_.fetch_add(1, std::memory_order_relaxed); }

  // Removes a partition; true if it was the last and the caller must call Resume.
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

// A change of a replica, by its log index and the primary that assigned it.
struct ChangeMark {
  std::shared_ptr<Replica> replica;
  uint64_t index = 0;
  uint64_t primary_since = 0;
};

// Holds calls until their condition is met, their deadline passes, their partition moves or the
// server closes. Owns no thread: a call resumes on the thread that met its condition. Thread-safe.
// Its lock and a replica's are never held together.
class WaitingCalls {
 public:
  using Resume = absl::AnyInvocable<void(absl::Status)>;

  // `stale_routing` makes the error for a partition that has moved away: FAILED_PRECONDITION with
  // that message and the present routing attached.
  WaitingCalls(size_t max_calls, const Clock& clock,
               std::function<absl::Status(absl::string_view message)> stale_routing)
      : max_calls_(max_calls), clock_(clock), stale_routing_(std::move(stale_routing)) {}

  // Runs `resume` once all `replicas` can answer a pull for `step`, or with an error:
  // FAILED_PRECONDITION with the new routing if one of them ceases to be a primary meanwhile. One
  // that is not a primary at the call counts as ready: `resume` checks the roles itself. A pull of
  // logical worker `rank` also waits for that one's own steps (Consistency.read_my_writes). `admit`
  // runs once, without locks, before a call waits, and not if the call need not wait; its error
  // becomes that of `resume`.
  void ForStep(const std::vector<std::shared_ptr<Replica>>& replicas, std::optional<uint32_t> rank,
               uint64_t step, CallContext context, absl::FunctionRef<absl::Status()> admit,
               Resume resume);
  // The same once all ranks have ended `step` (Partition::HaveAllEnded).
  void ForAllEnds(const std::vector<std::shared_ptr<Replica>>& replicas, uint64_t step,
                  CallContext context, Resume resume);
  // The same once all changes of primaries are committed.
  void ForCommit(const std::vector<ChangeMark>& changes, CallContext context, Resume resume);
  // The same once all changes of backups and learners are durable here. Replicas that have no data
  // do not count. The caller checks afterwards whether a replica still has its change: it may have
  // been replaced meanwhile.
  void ForDurable(const std::vector<ChangeMark>& changes, CallContext context, Resume resume);

  // Resumes the calls that Replica::TakeReady has returned. Call it without locks.
  static void ResumeReady(const std::vector<std::shared_ptr<WaitingCall>>& ready);
  // Fails the calls that Replica::TakeAll has returned. Call it without locks.
  void FailStale(const std::vector<std::shared_ptr<WaitingCall>>& stale) const;

  // Fails the calls whose deadline has passed or whose caller is gone. Then removes finished calls
  // from `replicas` (null: not hosted), without waiting for a replica's lock.
  void Expire(const std::vector<std::shared_ptr<Replica>>& replicas);
  // Fails all calls, and every later one.
  void Close(const absl::Status& status);
  size_t Count() const;

 private:
  // How far a change is, to a call that waits for it. kStale: the call fails.
  enum class Progress { kDone, kPending, kStale };

  // Runs `resume` once `look`, which is called under the replica's lock, finds no change pending.
  void Await(const std::vector<ChangeMark>& changes, CallContext context, Resume resume,
             absl::FunctionRef<Progress(const ChangeMark&, Replica&)> look);
  // Registers the call, or fails it and returns false.
  bool Register(const std::shared_ptr<WaitingCall>& call);

  const size_t max_calls_;
  const Clock& clock_;
  const std::function<absl::Status(absl::string_view message)> stale_routing_;
  // Some replica may still refer to finished calls.
  std::atomic<bool> finished_left_{false};

  mutable Mutex mu_;
  absl::Status closed_ PAWL_GUARDED_BY(mu_);
  std::list<std::shared_ptr<WaitingCall>> calls_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_WAITING_CALLS_H_
