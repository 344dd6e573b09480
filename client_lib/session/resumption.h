// Where a logical worker goes on that somebody else has left.
#ifndef PAWL_CLIENT_LIB_SESSION_RESUMPTION_H_
#define PAWL_CLIENT_LIB_SESSION_RESUMPTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace pawl {

struct Resumption {
  // Its next step, once it has ended the one before it in all partitions.
  uint64_t step = 0;
  // The partitions in which it is still to end step - 1, ascending. Every push of that step has
  // been taken everywhere, or no partition would have ended it.
  std::vector<uint32_t> behind;
};

// By the logical worker's clocks, one for each partition. Where steps are not in lockstep (BOUNDED,
// ASYNC) the partitions of a restored job may be several apart: it goes on at the lowest clock, and
// what has been taken is recognised as repeated. DATA_LOSS for clocks that no worker leaves.
// REQUIRES: not empty.
absl::StatusOr<Resumption> ResumptionAt(absl::Span<const uint64_t> clocks, ConsistencyMode mode);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_RESUMPTION_H_
