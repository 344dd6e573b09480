// How a rank handles the dense tables in training.
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
#include "worker/dense/dense_source.h"
#include "worker/dense/dense_store.h"
#include "worker/process/interrupt.h"
#include "worker/train/pulled_batch.h"
#include "worker/train/rank_shared.h"

namespace pawl {

// How long an ending rank waits until the other workers have taken up its dense gradients.
inline constexpr std::chrono::seconds kHandOverLimit{1};

// The handling depends on the kind of job. This class is the default: dense gradients are pushed to
// the servers with the others. Used by the rank's thread.
class RankDense {
 public:
  explicit RankDense(DenseSource* source) : source_(source) {}
  virtual ~RankDense() = default;
  RankDense(const RankDense&) = delete;
  RankDense& operator=(const RankDense&) = delete;

  // The source of the parameters. Null: they are pulled with the others.
  DenseSource* source() const { return source_; }
  // Waits until training may start, or continue after an evaluation.
  virtual absl::Status Begin() { return absl::OkStatus(); }

  // Whether this takes the dense gradients, which then are not pushed: the rank writes them into
  // Buffer and calls MarkReady. `dense`: the number among the dense tables.
  virtual bool TakesGradients() const { return false; }
  virtual absl::Span<float> Buffer(size_t /*dense*/) { return {}; }
  virtual void MarkReady(uint64_t /*step*/, size_t /*dense*/) {}
  // The rank has no samples in the step of this batch.
  virtual absl::Status SkipStep(PulledBatch& /*pulled*/, uint64_t /*step*/) {
    return absl::OkStatus();
  }

  // Whether the parameters are written back after this many steps; and, when all ranks have done
  // `step`, the rank's part of the write-back.
  virtual bool IsWriteBack(uint64_t /*steps*/) const { return false; }
  virtual absl::StatusOr<std::optional<DenseStore::WriteBackPart>> WriteBack(uint64_t /*step*/) {
    return std::nullopt;
  }

  // The rank ends before `step`. Waits briefly, so that its gradients are not lost with this
  // process.
  virtual void HandOver(uint64_t /*step*/) {}
  // Whether no rank may end before all have done their steps.
  virtual bool MeetsAtEnd() const { return false; }

 private:
  DenseSource* const source_;
};

// All arguments outlive the result.
std::unique_ptr<RankDense> MakeRankDense(const RankShared& shared, uint32_t rank,
                                         Interrupts interrupts, WaitingTime& waiting);

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_DENSE_H_
