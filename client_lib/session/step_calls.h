// The calls of a rank that concern all of its partitions: the end of a step, and taking the rank
// over.
#ifndef PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
#define PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/session/messenger.h"
#include "proto/parameter.pb.h"

namespace pawl {

// Ends `header.step` in the partitions, each by its primary. `segments`: see EndStepRequest; by
// partition, or empty. `done` gets OK when every partition has confirmed it, under whatever
// routing. REQUIRES: there are partitions.
void EndStep(Messenger& messenger, const RequestHeader& header, std::vector<uint32_t> partitions,
             std::vector<uint64_t> segments, MonotonicTime deadline,
             absl::AnyInvocable<void(absl::Status)> done);

// Takes the logical worker over in partitions 0 to `partitions` - 1; `done` gets its clock in each
// of them.
void TakeOver(Messenger& messenger, const RequestHeader& header, uint32_t partitions,
              MonotonicTime deadline,
              absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_STEP_CALLS_H_
