// Where the ranks of a process get the dense parameters from.
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

// The dense parameters that one rank reads in one step. Used by one thread, until the rank starts
// the step after the next.
class DenseView {
 public:
  virtual ~DenseView() = default;

  // Waits until values() may be called for every table. Returns the interrupt's reason once it is
  // set.
  virtual absl::Status Await(const Interrupt& interrupt) = 0;
  // Waits until the values of one table are readable, which may be later. REQUIRES: Await returned
  // OK.
  virtual absl::Status AwaitTable(size_t table, const Interrupt& interrupt) = 0;
  // All values of dense table number `table`, readable after AwaitTable. For a DenseReplica they
  // lie in the replica's memory. REQUIRES: Await returned OK.
  virtual absl::Span<const float> values(size_t table) const = 0;
};

// Implemented by DenseSnapshots, which pulls from the servers, and by DenseReplica, which the
// workers train themselves. Thread-safe.
class DenseSource {
 public:
  virtual ~DenseSource() = default;

  // The parameters of `step` for the session's rank. Starts to fetch them if no rank has. REQUIRES:
  // the rank has awaited all tables of the previous step that it asked for.
  virtual absl::StatusOr<std::unique_ptr<DenseView>> At(uint64_t step, Session& session,
                                                        MonotonicDuration timeout) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_DENSE_SOURCE_H_
