// Where the ranks of a process get the dense parameters from.
#ifndef PAWL_WORKER_DENSE_DENSE_SOURCE_H_
#define PAWL_WORKER_DENSE_DENSE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
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

// Used for training in SYNC without backup workers, where every rank sees exactly version t at step
// t; and for evaluations in any mode, before which all ranks reach the same step.
//
// Two buffers are enough, for even and for odd steps: a rank asks for step t + 2 only after it has
// seen version t + 1, hence after all ranks have ended step t and no longer use its values. A rank
// that the process takes over when others ask for step t + 1 has not ended step t either.
//
// Thread-safe. Calls share ownership of the memory that they write into.
class DenseSnapshots final : public DenseSource {
 public:
  // REQUIRES: all tables are dense.
  explicit DenseSnapshots(std::vector<Table> tables);

  // The first rank to ask pulls the snapshot of `step` through its own session; the others share
  // it. Valid until step + 2 is requested. INTERNAL for a step out of order.
  absl::StatusOr<std::unique_ptr<DenseView>> At(uint64_t step, Session& session,
                                                MonotonicDuration timeout) override;

 private:
  std::shared_ptr<std::vector<std::vector<float>>> NewValues() const;

  const std::vector<Table> tables_;

  struct Place {
    std::optional<uint64_t> step;
    std::shared_ptr<std::vector<std::vector<float>>> values;
    std::shared_future<absl::Status> ready;
  };

  Mutex mu_;
  Place places_[2] PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_SOURCE_H_
