#include "worker/train/rank_dense.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "worker/dense/dense_replica.h"

namespace pawl {
namespace {

// dense_path: ALLREDUCE.
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
    return waiting_.Of(
        [&] { return replica_.AwaitTakenIn(rank_, shared_.step_timeout, interrupts_.leave); });
  }
  bool TakesGradients() const override { return true; }
  absl::Span<float> Buffer(size_t dense) override { return replica_.GradientBuffer(rank_, dense); }
  void Give(uint64_t step, size_t dense) override { replica_.Give(rank_, step, dense); }
  absl::Status GiveNothing(PulledBatch& pulled, uint64_t step) override {
    for (size_t t = 0; t < shared_.tables.size(); ++t) PAWL_RETURN_IF_ERROR(pulled.AwaitTable(t));
    replica_.GiveNothing(rank_, step);
    return absl::OkStatus();
  }
  bool IsWriteBack(uint64_t steps) const override { return shared_.plan.IsWriteBack(steps); }
  absl::StatusOr<std::optional<DenseStore::WriteBackPart>> WriteBack(uint64_t step) override {
    const auto await = [&](MonotonicDuration limit, const Interrupt& interrupt) {
      return waiting_.Of([&] { return replica_.AwaitSteps(step + 1, limit, interrupt); });
    };
    absl::Status status = await(shared_.step_timeout, interrupts_.leave);
    // Something of the step was pushed, so that it is to be ended; but a rank that is to end does
    // not keep everybody: whoever is to take over another rank of this process may be needed for
    // what it waits for.
    if (!status.ok() && !interrupts_.leave.reason().ok() && interrupts_.abandon.reason().ok()) {
      status = await(kHandOverLimit, interrupts_.abandon);
    }
    PAWL_RETURN_IF_ERROR(status);
    PAWL_ASSIGN_OR_RETURN(std::optional<DenseStore::WriteBackPart> part,
                          replica_.WriteBack(*shared_.store, step + 1, rank_));
    // In the other modes blocks of two write-backs are allowed on the servers.
    if (!part.has_value() && IsSync(shared_.job.consistency().mode())) {
      return absl::InternalError(absl::StrCat("the dense parameters are not those after ", step + 1,
                                              " steps, though logical worker ", rank_,
                                              " has not ended step ", step));
    }
    return part;
  }
  void HandOver(uint64_t step) override {
    // Unless the others have taken it up.
    replica_.AwaitSteps(step, kHandOverLimit, interrupts_.abandon).IgnoreError();
  }
  // As long as a rank may have to be taken over, its new worker needs a group of all ranks.
  bool MeetsAtTheEnd() const override { return true; }

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
