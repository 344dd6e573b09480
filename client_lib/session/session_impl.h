// The implementation of Session and LogicalWorker: one sender of pushes and pulls. A free-running
// sender refuses EndStep.
#ifndef PAWL_CLIENT_LIB_SESSION_SESSION_IMPL_H_
#define PAWL_CLIENT_LIB_SESSION_SESSION_IMPL_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client_lib/base/mutex.h"
#include "client_lib/client.h"
#include "client_lib/session/client_core.h"
#include "client_lib/session/step_calls.h"
#include "proto/parameter.pb.h"

namespace pawl {

// Invariants:
// 1. Pushes are divided into segments, numbered and given to the messenger one after another, in
//    the order of the calls, whichever thread does it (Pump).
// 2. For a logical worker: nothing of step s is sent before EndStep(s - 1) is done, except pulls
//    that ask for it. EndStep(s) is sent when all pushes of step s are done. With
//    Job.clip_global_norm, no push and no end of step s is sent before step s - 1 has closed in all
//    partitions. Its pulls are sent: each waits at its server until the step has closed there.
// 3. While an assignment is in flight, no other operation is.
// 4. The pushes in flight have at most kMaxSegmentsAhead segments in a partition, counted from the
//    oldest one that is not done.
//
// Thread-safe. Owned by shared_ptr, which calls in flight share.
class SessionImpl final : public LogicalWorker, public std::enable_shared_from_this<SessionImpl> {
 public:
  struct Identity {
    // Unset for a free-running client.
    std::optional<uint32_t> rank;
    // Unset in a process whose role is not CLIENT_ROLE, which only pulls.
    std::optional<uint32_t> client;
    uint64_t first_step = 0;
    // 0: the incarnation of the process.
    uint64_t incarnation = 0;
    // See RequestHeader.ticket. That of a client is in its registration.
    std::string ticket;
  };

  // Core and session keep each other alive until ClientCore::Close.
  SessionImpl(std::shared_ptr<ClientCore> core, const Identity& identity);

  using LogicalWorker::Assign;
  using LogicalWorker::EndStep;
  using LogicalWorker::Pull;
  using LogicalWorker::Push;
  using LogicalWorker::PushPull;
  using LogicalWorker::SetLearningRates;
  void Push(absl::Span<const PushItem> items, const CallOptions& options, Callback done) override;
  void Assign(absl::Span<const AssignItem> items, const CallOptions& options,
              Callback done) override;
  void Pull(absl::Span<const PullItem> items, const CallOptions& options, Callback done) override;
  void PushPull(absl::Span<const PushItem> pushes, absl::Span<const PullItem> pulls,
                const CallOptions& options, Callback done) override;
  void SetLearningRates(absl::Span<const LearningRateItem> items, const CallOptions& options,
                        Callback done) override;
  void EndStep(const CallOptions& options, Callback done) override;
  // 0 for a free-running client.
  uint32_t rank() const override { return identity_.rank.value_or(0); }
  uint64_t step() const override;

  // Job.clip_global_norm: closes `step`, which the rank has ended everywhere. This follows every
  // EndStep, whatever the caller does next: the last step has no later pull, and one that a
  // predecessor may have left open comes first in a session after a takeover. It runs in the
  // background, because it waits for ranks that the caller may only serve after EndStep is done.
  // The next step's pushes and its end wait for it. REQUIRES: nothing has been sent since.
  void CloseStep(uint64_t step);

  // Ends everything that waits here, and all later calls, with `why`.
  void Fail(const absl::Status& why);

 private:
  class PushCall;
  class PullCall;

  // A Push, Assign, SetLearningRates or EndStep that waits for its turn; one of the calls is set.
  struct Operation {
    Call& call() const;

    std::shared_ptr<PushCall> push;
    std::shared_ptr<EndStepCall> end;
    uint64_t id = 0;
    std::optional<DeadlineQueue::Id> timer;
  };
  struct WaitingPull {
    std::shared_ptr<PullCall> pull;
    uint64_t id = 0;
    std::optional<DeadlineQueue::Id> timer;
  };
  // A push that is in flight, or done after an older one that is not.
  struct Ahead {
    uint64_t segments;
    bool done;
  };

  // Queues a Push, Assign or SetLearningRates.
  template <typename Item>
  void EnqueuePush(absl::Span<const Item> items, const CallOptions& options, Callback done);
  // Queues an operation, unless `refused` is an error or the session must refuse it. `make`
  // runs under mu_, takes the callback, and creates the operation's call. A refusal closes a rank's
  // session to further calls, but ends no other call.
  void Enqueue(absl::Status refused, Callback user_done,
               absl::FunctionRef<void(Operation&, Callback&)> make);
  RequestHeader Header(uint64_t step) const;
  // FAILED_PRECONDITION if the servers of this job know neither effects nor slots.
  absl::Status CheckEffectsAreKnown() const;
  // Executes the queued operations that can be executed now.
  void Pump();
  // Executes the next operation; returns false if none can be executed. The caller holds pumping_.
  bool PumpOne();
  // Must be called where the obstacle to the end of the step is removed, so that the end never
  // overtakes the failure of a push. The first failure stays.
  void BreakLocked(const absl::Status& status) PAWL_REQUIRES(mu_);
  void OnPushGranted(const absl::Status& status, std::shared_ptr<PushCall> push);
  // Divides granted_ into segments, if that is not done yet, and sends or refuses it. Returns false
  // if it waits for older pushes to leave the window.
  bool SendGranted(const std::shared_ptr<PushCall>& push);
  void OnPushDone(const PushCall& push, std::optional<std::list<Ahead>::iterator> ahead,
                  const absl::Status& status);
  void OnStepEnded(uint64_t step, const absl::Status& status);
  void OnStepClosed(const absl::Status& status);
  void StartPull(std::shared_ptr<PullCall> pull);
  // Sets a timer for the operation if it still waits.
  void WatchDeadline(uint64_t id);
  void ExpireOperation(uint64_t id);
  void ExpireGranted(const std::shared_ptr<PushCall>& push);
  void ExpirePull(uint64_t id);

  const std::shared_ptr<ClientCore> core_;
  const Identity identity_;

  // Only touched by the thread that holds pumping_.
  std::vector<uint64_t> next_ordinal_;  // by partition; of the step, or of the incarnation
  uint64_t ordinals_of_step_ = 0;

  // Restarts at 0 if the step has changed. The caller holds pumping_.
  void RestartOrdinals(uint64_t step);

  mutable Mutex mu_;
  // The status with which new calls end at once. Earlier calls of a rank continue while broken_ is
  // OK.
  absl::Status closed_ PAWL_GUARDED_BY(mu_);
  // The status with which waiting calls end. If it is set, so is closed_.
  absl::Status broken_ PAWL_GUARDED_BY(mu_);
  // The step of calls made now, and the step that is being sent.
  uint64_t step_ PAWL_GUARDED_BY(mu_);
  uint64_t active_step_ PAWL_GUARDED_BY(mu_);
  bool ending_step_ PAWL_GUARDED_BY(mu_) = false;
  bool closing_step_ PAWL_GUARDED_BY(mu_) = false;
  // The assignment that has left the queue and is not done.
  const PushCall* assigning_ PAWL_GUARDED_BY(mu_) = nullptr;
  bool pumping_ PAWL_GUARDED_BY(mu_) = false;
  bool pump_again_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t next_id_ PAWL_GUARDED_BY(mu_) = 0;
  std::deque<Operation> operations_ PAWL_GUARDED_BY(mu_);
  // The push at the head of the queue, while it waits for bytes or for the window.
  bool waits_for_bytes_ PAWL_GUARDED_BY(mu_) = false;
  std::shared_ptr<PushCall> granted_ PAWL_GUARDED_BY(mu_);
  // Set while granted_ waits for the window.
  std::optional<DeadlineQueue::Id> granted_timer_ PAWL_GUARDED_BY(mu_);
  std::list<Ahead> ahead_ PAWL_GUARDED_BY(mu_);
  uint64_t segments_ahead_ PAWL_GUARDED_BY(mu_) = 0;
  std::vector<WaitingPull> waiting_pulls_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_SESSION_IMPL_H_
