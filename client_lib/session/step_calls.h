// The calls of a rank that concern all of its partitions: ending a step and taking over the rank.
#ifndef PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
#define PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/session/messenger.h"
#include "proto/parameter.pb.h"
#include "proto/types.pb.h"

namespace pawl {

// Ends `header.step` in `partitions`, at the primary of each. `segments` (see EndStepRequest) is
// indexed by partition, or empty. `done` gets OK once every partition has confirmed the step, under
// any routing. REQUIRES: `partitions` is not empty.
void EndStep(Messenger& messenger, const RequestHeader& header, std::vector<uint32_t> partitions,
             std::vector<uint64_t> segments, MonotonicTime deadline,
             absl::AnyInvocable<void(absl::Status)> done);

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
// clock, and servers recognise repeated pushes. DATA_LOSS for clocks that no worker can leave
// behind. REQUIRES: `clocks` is not empty.
absl::StatusOr<Resumption> ResumptionAt(absl::Span<const uint64_t> clocks, ConsistencyMode mode);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
