// What a rank does about the dense tables in training.
#ifndef PAWL_WORKER_TRAIN_RANK_DENSE_H_
#define PAWL_WORKER_TRAIN_RANK_DENSE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/dense/dense_store.h"
#include "worker/process/interrupt.h"
#include "worker/train/dense_source.h"
#include "worker/train/pulled_batch.h"
#include "worker/train/rank_shared.h"
#include "worker/train/waiting_time.h"

namespace pawl {

// How long a rank that is to end waits for the other workers to take up its dense gradients.
inline constexpr std::chrono::seconds kHandOverLimit{1};

// By the kind of job. This one: their gradients go to the servers with the others. For the rank's
// thread.
class RankDense {
 public:
  explicit RankDense(DenseSource* source) : source_(source) {}
  virtual ~RankDense() = default;
  RankDense(const RankDense&) = delete;
  RankDense& operator=(const RankDense&) = delete;

  // Where the parameters come from; null: they are pulled with the others.
  DenseSource* source() const { return source_; }
  // Waits until training may begin, or go on after an evaluation.
  virtual absl::Status Begin() { return absl::OkStatus(); }

  // Whether it takes the gradients, which then are not pushed: they go into Buffer, and Give says
  // that they are there. `dense`: the place among the dense tables.
  virtual bool TakesGradients() const { return false; }
  virtual absl::Span<float> Buffer(size_t /*dense*/) { return {}; }
  virtual void Give(uint64_t /*step*/, size_t /*dense*/) {}
  // The rank has no samples in the step of this batch.
  virtual absl::Status GiveNothing(PulledBatch& /*pulled*/, uint64_t /*step*/) {
    return absl::OkStatus();
  }

  // Whether the parameters are written back after so many steps; and, when all have done `step`,
  // the rank's part of them.
  virtual bool IsWriteBack(uint64_t /*steps*/) const { return false; }
  virtual absl::StatusOr<std::optional<DenseStore::WriteBackPart>> WriteBack(uint64_t /*step*/) {
    return std::nullopt;
  }

  // The rank is to end before `step`: waits a little, so that what it has given is not lost with
  // this process.
  virtual void HandOver(uint64_t /*step*/) {}
  // No rank may end before all have done their steps.
  virtual bool MeetsAtTheEnd() const { return false; }

 private:
  DenseSource* const source_;
};

// All of it outlives what is returned.
std::unique_ptr<RankDense> MakeRankDense(const RankShared& shared, uint32_t rank,
                                         Interrupts interrupts, WaitingTime& waiting);

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_DENSE_H_
