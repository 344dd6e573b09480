// The dense parameters of a step, pulled once for all ranks of a process.
#ifndef PAWL_WORKER_TRAIN_DENSE_SNAPSHOTS_H_
#define PAWL_WORKER_TRAIN_DENSE_SNAPSHOTS_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/mutex.h"
#include "client_lib/client.h"
#include "worker/train/dense_source.h"

namespace pawl {

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

#endif  // PAWL_WORKER_TRAIN_DENSE_SNAPSHOTS_H_
