#include "worker/train/rank_dense.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "worker/dense/dense_replica.h"

namespace pawl {
namespace {

// For dense_path: ALLREDUCE.
class ReplicatedDense final : public RankDense {
 public:
  ReplicatedDense(const RankShared& shared, uint32_t rank, Interrupts interrupts,
                  WaitingTime& waiting)
      : RankDense(shared.dense),
        shared_(shared),
        replica_(*shared.replica),
        rank_(rank),
        interrupts_(interrupts),
        waiting_(waiting) {}

  absl::Status Begin() override {
    return waiting_.Measure(
        [&] { return replica_.AwaitSynchronized(rank_, shared_.step_timeout, interrupts_.leave); });
  }
  bool TakesGradients() const override { return true; }
  absl::Span<float> Buffer(size_t dense) override { return replica_.GradientBuffer(rank_, dense); }
  void MarkReady(uint64_t step, size_t dense) override { replica_.MarkReady(rank_, step, dense); }
  absl::Status SkipStep(PulledBatch& pulled, uint64_t step) override {
    for (size_t t = 0; t < shared_.tables.size(); ++t) PAWL_RETURN_IF_ERROR(pulled.AwaitTable(t));
    replica_.SkipStep(rank_, step);
    return absl::OkStatus();
  }
  bool IsWriteBack(uint64_t steps) const override { return shared_.plan.IsWriteBack(steps); }
  absl::StatusOr<std::optional<DenseStore::WriteBackPart>> WriteBack(uint64_t step) override {
    const auto await = [&](MonotonicDuration limit, const Interrupt& interrupt) {
      return waiting_.Measure([&] { return replica_.AwaitSteps(step + 1, limit, interrupt); });
    };
    absl::Status status = await(shared_.step_timeout, interrupts_.leave);
    // A part of the step was pushed, so the step should be ended. But an ending rank must not block
    // the others: they may wait for a rank of this process that another worker can only take over
    // after it has left.
    if (!status.ok() && !interrupts_.leave.reason().ok() && interrupts_.abandon.reason().ok()) {
      status = await(kHandOverLimit, interrupts_.abandon);
    }
    PAWL_RETURN_IF_ERROR(status);
    PAWL_ASSIGN_OR_RETURN(std::optional<DenseStore::WriteBackPart> part,
                          replica_.WriteBack(*shared_.store, step + 1, rank_));
    // In the other modes the servers may hold blocks of two write-backs.
    if (!part.has_value() && IsSync(shared_.job.consistency().mode())) {
      return absl::InternalError(absl::StrCat("the dense parameters are not at ", step + 1,
                                              " steps, though logical worker ", rank_,
                                              " has not ended step ", step));
    }
    return part;
  }
  void HandOver(uint64_t step) override {
    // Returns early once the others have taken up the gradients.
    replica_.AwaitSteps(step, kHandOverLimit, interrupts_.abandon).IgnoreError();
  }
  // A worker that takes over a rank needs a group with all ranks, so none leaves early.
  bool MeetsAtEnd() const override { return true; }

 private:
  const RankShared& shared_;
  DenseReplica& replica_;
  const uint32_t rank_;
  const Interrupts interrupts_;
  WaitingTime& waiting_;
};

}  // namespace

std::unique_ptr<RankDense> MakeRankDense(const RankShared& shared, uint32_t rank,
                                         Interrupts interrupts, WaitingTime& waiting) {
  if (shared.replica == nullptr) return std::make_unique<RankDense>(shared.dense);
  return std::make_unique<ReplicatedDense>(shared, rank, interrupts, waiting);
}

}  // namespace pawl
