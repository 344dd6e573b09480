// Where the ranks of a process have the dense parameters from.
#ifndef PAWL_WORKER_TRAIN_DENSE_SOURCE_H_
#define PAWL_WORKER_TRAIN_DENSE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/client.h"
#include "worker/process/interrupt.h"

namespace pawl {

// The dense parameters that one rank reads in one step. Used by one thread; it must not be used any
// more when the rank has begun the step after the next.
class DenseView {
 public:
  virtual ~DenseView() = default;

  // Waits until values() may be called for each table. The interrupt's reason once that is set.
  virtual absl::Status Await(const Interrupt& interrupt) = 0;
  // Waits until the values of a table are there, which may be later. REQUIRES: Await was OK.
  virtual absl::Status AwaitTable(size_t table, const Interrupt& interrupt) = 0;
  // The whole of dense table number `table`, to be read after AwaitTable; of a DenseReplica, in the
  // memory in which it lies. REQUIRES: Await was OK.
  virtual absl::Span<const float> values(size_t table) const = 0;
};

// Thread-safe. Implementations: DenseSnapshots, pulled from the servers; DenseReplica, which the
// workers keep themselves.
class DenseSource {
 public:
  virtual ~DenseSource() = default;

  // Those of `step`, for the rank of the session; begins to fetch them where nobody has. REQUIRES:
  // the rank has awaited all tables of step - 1, if it asked for any before.
  virtual absl::StatusOr<std::unique_ptr<DenseView>> At(uint64_t step, Session& session,
                                                        MonotonicDuration timeout) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_DENSE_SOURCE_H_
