// One sender of pushes and pulls: what is behind Session and LogicalWorker. A free-running sender
// is one too, whose EndStep is refused.
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
#include "proto/parameter.pb.h"

namespace pawl {

// Invariants:
// 1. Pushes are cut, numbered and handed to the messenger one after another, in the order of the
// calls,
//    whichever thread does it (Pump).
// 2. Of a logical worker: nothing of step s is sent before EndStep(s - 1) is done, except pulls
// that ask
//    for it; EndStep(s) is sent when all pushes of step s are done.
// 3. The pushes under way have at most kMaxSegmentsAhead segments in a partition, counted from the
//    oldest that is not done.
// Thread-safe. Owned by shared_ptr, which calls under way share.
class SessionImpl final : public LogicalWorker, public std::enable_shared_from_this<SessionImpl> {
 public:
  struct Identity {
    // Unset: a free-running client.
    std::optional<uint32_t> rank;
    // Unset in a process that is not a client by role: it only pulls.
    std::optional<uint32_t> client;
    uint64_t first_step = 0;
    // 0: that of the process.
    uint64_t incarnation = 0;
  };

  // Core and session share each other until ClientCore::Close.
  SessionImpl(std::shared_ptr<ClientCore> core, const Identity& identity);

  using LogicalWorker::EndStep;
  using LogicalWorker::Pull;
  using LogicalWorker::Push;
  using LogicalWorker::PushPull;
  void Push(absl::Span<const PushItem> items, const CallOptions& options, Callback done) override;
  void Pull(absl::Span<const PullItem> items, const CallOptions& options, Callback done) override;
  void PushPull(absl::Span<const PushItem> pushes, absl::Span<const PullItem> pulls,
                const CallOptions& options, Callback done) override;
  void EndStep(const CallOptions& options, Callback done) override;
  // 0 if it has none.
  uint32_t rank() const override { return identity_.rank.value_or(0); }
  uint64_t step() const override;

  // Ends everything that waits here with `why`, and all calls from now on.
  void Fail(const absl::Status& why);

 private:
  class PushCall;
  class PullCall;

  // A Push or EndStep that waits for its turn.
  struct Operation {
    std::shared_ptr<PushCall> push;  // null: EndStep
    uint64_t step = 0;
    MonotonicTime deadline;
    Callback done;  // of EndStep
    uint64_t id = 0;
    std::optional<DeadlineQueue::Id> timer;
  };
  struct WaitingPull {
    std::shared_ptr<PullCall> pull;
    uint64_t id = 0;
    std::optional<DeadlineQueue::Id> timer;
  };
  // A push that is under way, or done after an older one that is not.
  struct Ahead {
    uint64_t segments;
    bool done;
  };

  // Lets a Push or EndStep wait for its turn, unless it is `refused`, or now: `fill`, which has mu_
  // and takes the callback away, makes of it what it is. One that is refused closes the session of
  // a rank to further calls; no other call ends by that.
  void Enqueue(absl::Status refused, const CallOptions& options, Callback user_done,
               absl::FunctionRef<void(Operation&, Callback&)> fill);
  RequestHeader Header(uint64_t step) const;
  // Does what can be done now of what waits.
  void Pump();
  // Does the next thing; false if nothing can be done. The caller has pumping_.
  bool PumpOne();
  // To be done where what held the end of the step back is taken away, so that the
  // end never overtakes the failure of a push. The first failure stays.
  void BreakLocked(const absl::Status& status) PAWL_REQUIRES(mu_);
  void OnPushGranted(const absl::Status& status, std::shared_ptr<PushCall> push);
  // Cuts granted_, if it is not cut yet, and sends or refuses it; false if it waits for older ones
  // to leave the window.
  bool SendGranted(const std::shared_ptr<PushCall>& push);
  void OnPushDone(std::optional<std::list<Ahead>::iterator> ahead, const absl::Status& status);
  void OnStepEnded(uint64_t step, const absl::Status& status);
  void StartPull(std::shared_ptr<PullCall> pull);
  // Sets a timer for the operation if it still waits.
  void WatchDeadline(uint64_t id);
  void ExpireOperation(uint64_t id);
  void ExpireGranted(const std::shared_ptr<PushCall>& push);
  void ExpirePull(uint64_t id);

  const std::shared_ptr<ClientCore> core_;
  const Identity identity_;

  // Only touched by the thread that has pumping_.
  std::vector<uint64_t> next_ordinal_;  // by partition; of the step, or of the incarnation
  uint64_t ordinals_of_step_ = 0;

  // Counts from 0 again if the step is another one. The caller has pumping_.
  void BeginOrdinals(uint64_t step);

  mutable Mutex mu_;
  // With what calls that are made now end at once. An earlier call of a rank goes on while broken_
  // is OK.
  absl::Status closed_ PAWL_GUARDED_BY(mu_);
  // With what calls end that wait for their turn. Never without closed_.
  absl::Status broken_ PAWL_GUARDED_BY(mu_);
  // The step that calls made now belong to, and the one that is being sent.
  uint64_t step_ PAWL_GUARDED_BY(mu_);
  uint64_t active_step_ PAWL_GUARDED_BY(mu_);
  bool ending_step_ PAWL_GUARDED_BY(mu_) = false;
  bool pumping_ PAWL_GUARDED_BY(mu_) = false;
  bool pump_again_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t next_id_ PAWL_GUARDED_BY(mu_) = 0;
  std::deque<Operation> operations_ PAWL_GUARDED_BY(mu_);
  // The push at the head of the line, while it waits for bytes or for the window.
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
