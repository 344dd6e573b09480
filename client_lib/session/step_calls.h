// The calls of a rank that concern all of its partitions: ending a step and taking over the rank.
#ifndef PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
#define PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/call.h"
#include "client_lib/session/messenger.h"
#include "proto/parameter.pb.h"
#include "proto/types.pb.h"

namespace pawl {

// Ends `header.step`. `done` gets OK once every partition has confirmed the end, under any routing.
class EndStepCall final : public Call, public std::enable_shared_from_this<EndStepCall> {
 public:
  EndStepCall(const RequestHeader& header, MonotonicTime deadline,
              absl::AnyInvocable<void(absl::Status)> done);

  // Sends the end to the primary of each partition. `segments` (see EndStepRequest) is indexed by
  // partition, or empty. Call it once. REQUIRES: `partitions` is not empty.
  void Send(Messenger& messenger, absl::Span<const uint32_t> partitions,
            absl::Span<const uint64_t> segments);

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override;
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override;
  void Finish(const absl::Status& status) override;

 private:
  std::vector<uint64_t> segments_;
  absl::AnyInvocable<void(absl::Status)> done_;
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
