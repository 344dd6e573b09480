// The calls of a rank that concern all of its partitions: ending and closing a step, and taking
// over the rank.
#ifndef PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
#define PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/call.h"
#include "client_lib/rpc/deadline_queue.h"
#include "client_lib/session/messenger.h"
#include "proto/parameter.pb.h"
#include "proto/types.pb.h"

namespace pawl {

// Ends `header.step`. `done` gets OK once every partition has confirmed the end, under any routing.
class EndStepCall final : public Call, public std::enable_shared_from_this<EndStepCall> {
 public:
  EndStepCall(const RequestHeader& header, MonotonicTime deadline,
              absl::AnyInvocable<void(absl::Status)> done);
  // Another phase. `request` lacks the header, partitions and segments. `name` is for errors.
  EndStepCall(absl::string_view name, EndStepRequest request, const RequestHeader& header,
              MonotonicTime deadline, absl::AnyInvocable<void(absl::Status)> done);

  // Sends the end to the primary of each partition. `segments` (see EndStepRequest) is indexed by
  // partition, or empty. Call it once. REQUIRES: `partitions` is not empty.
  void Send(Messenger& messenger, absl::Span<const uint32_t> partitions,
            absl::Span<const uint64_t> segments);

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override;
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override;
  void Finish(const absl::Status& status) override;

 private:
  const EndStepRequest request_;
  std::vector<uint64_t> segments_;
  absl::AnyInvocable<void(absl::Status)> done_;
};

// The factor of a step's gradients (Job.clip_global_norm). `squares` are those of its partitions
// (EndStepResponse.squares), in ascending order of the partitions, in which they are added: every
// rank computes the same bits. Above 0 and at most 1; 1 if the norm is no number, as when gradients
// overflow.
float ClipScale(absl::Span<const double> squares, float clip_global_norm);

// Closes `header.step` in partitions 0 to `partitions` - 1 of a job with clip_global_norm. Waits
// until all ranks have ended it, and then sends the scale of its gradients to every partition.
// `done` gets OK once every partition has confirmed that the step is closed, under any routing.
// REQUIRES: the rank has ended the step in every partition.
void CloseStep(Messenger& messenger, const RequestHeader& header, uint32_t partitions,
               float clip_global_norm, MonotonicTime deadline,
               absl::AnyInvocable<void(absl::Status)> done);

// A rank's session closes a step in the background and may be gone before that is done. What tells
// the scheduler about the rank's steps waits for it here. Thread-safe. Owned by shared_ptr.
class StepClosings : public std::enable_shared_from_this<StepClosings> {
 public:
  explicit StepClosings(std::shared_ptr<DeadlineQueue> deadlines)
      : deadlines_(std::move(deadlines)) {}

  // A session of the rank begins to close a step; and has closed it, or failed to. A client that
  // has failed ends its calls with an error of its own, which may be ABORTED, too.
  void Begin(uint32_t rank);
  void End(uint32_t rank, const absl::Status& status, bool client_has_failed);

  // Runs `done` once no step of the ranks (empty: of any rank) that is being closed now is open.
  // A server's ABORTED counts as the end: the rank has a successor, which closes the step. Other
  // errors become the result, also those from before the call, until a close of the rank succeeds
  // or is aborted. DEADLINE_EXCEEDED: not in time.
  void WhenClosed(absl::Span<const uint32_t> ranks, MonotonicTime deadline,
                  absl::AnyInvocable<void(absl::Status)> done);

 private:
  struct Waiter {
    absl::btree_set<uint32_t> ranks;
    std::optional<DeadlineQueue::Id> timer;
    absl::AnyInvocable<void(absl::Status)> done;
  };

  void Expire(uint64_t id);

  const std::shared_ptr<DeadlineQueue> deadlines_;

  Mutex mu_;
  // The steps being closed, by rank. A rank that was closed and taken over again may have several.
  absl::btree_map<uint32_t, uint32_t> closing_ PAWL_GUARDED_BY(mu_);
  // The last error of the ranks whose last close failed.
  absl::btree_map<uint32_t, absl::Status> failed_ PAWL_GUARDED_BY(mu_);
  uint64_t next_id_ PAWL_GUARDED_BY(mu_) = 0;
  absl::btree_map<uint64_t, Waiter> waiters_ PAWL_GUARDED_BY(mu_);
};

// Takes over the logical worker in partitions 0 to `partitions` - 1. `done` gets the worker's clock
// in each of them.
void TakeOver(Messenger& messenger, const RequestHeader& header, uint32_t partitions,
              MonotonicTime deadline,
              absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done);

// Where a logical worker continues after a takeover.
struct Resumption {
  // The next step, once the step before it has ended in all partitions.
  uint64_t step = 0;
  // The partitions, ascending, in which step - 1 is still to be ended. Every push of that step is
  // safe on all servers, because the step has ended in another partition.
  std::vector<uint32_t> behind;
};

// Computes the resumption from the worker's clocks, one for each partition. Outside SYNC, the
// partitions of a restored job may be several steps apart: the worker continues at the lowest
// clock, and servers recognise repeated pushes. DATA_LOSS if clocks of a SYNC job differ by more
// than one step, which no worker causes. REQUIRES: `clocks` is not empty.
absl::StatusOr<Resumption> ResumptionAt(absl::Span<const uint64_t> clocks, ConsistencyMode mode);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
