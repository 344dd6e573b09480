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

// For training in SYNC without backup workers alone, where every rank sees exactly version t
// at step t; and for evaluations in any mode, for which all ranks come to the same step
// first. There are two places, for even and for odd steps: a rank asks for
// step t + 2 only when it has seen version t + 1, hence when all ranks have
// ended step t and done with its values. Ranks that the process takes over meanwhile
// have not ended step t either, where others ask for step t + 1.
//
// Thread-safe. Calls share the memory that they write into.
class DenseSnapshots final : public DenseSource {
 public:
  // REQUIRES: all are dense.
  explicit DenseSnapshots(std::vector<Table> tables);

  // The first rank to ask pulls the snapshot of `step` through its own session, the others share
  // it. Good until one of step + 2 is asked for. INTERNAL for a step out of that order.
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
