// A rank's part in the evaluations of its job.
#ifndef PAWL_WORKER_TRAIN_RANK_EVALUATION_H_
#define PAWL_WORKER_TRAIN_RANK_EVALUATION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/job/group_field.h"
#include "proto/scheduler.pb.h"
#include "worker/data/batch_assembler.h"
#include "worker/data/sampler.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/batch_stream.h"
#include "worker/train/pulled_batch.h"
#include "worker/train/rank_shared.h"

namespace pawl {

// Samples that a rank evaluates at a time.
inline constexpr uint64_t kEvaluationBatchSize = 8192;

// The number of samples up to which scores are exact, of all labels together. `setting`:
// evaluation.max_exact_samples. The largest result is what the scheduler accepts as distinct scores
// (kMaxEvaluationScores).
inline uint64_t MaxExactSamples(uint64_t setting) {
  return setting == 0 ? uint64_t{1} << 24 : std::min(setting, uint64_t{1} << 25);
}

// Used by the rank's thread.
class RankEvaluation {
 public:
  // All arguments outlive it. `places`: at least two, released whenever Run is called. REQUIRES:
  // shared.eval is not null, and has the groups of evaluation.group_by.
  RankEvaluation(const RankShared& shared, uint32_t rank, TrainingModel& model,
                 absl::Span<PulledBatch> places, const Interrupt& leave)
      : shared_(shared), rank_(rank), model_(model), places_(places), leave_(leave) {}
  // Runs the rank's share of the evaluation after `step` steps, reports it and awaits the
  // scheduler's answer. True: training stops here. An error leaves calls running.
  absl::StatusOr<bool> Run(uint64_t step);
  // After the last Run: reads nothing more. Does not wait for a read in progress.
  void Cancel();
  // After Cancel: whether no thread reads, so that destruction does not wait.
  bool IsIdle() const;

 private:
  // Prepares the batches of the rank's share.
  absl::Status OpenShare();
  // Finds the rank's groups, unless they are known.
  absl::Status FindGroups();

  absl::StatusOr<ReportEvaluationResponse> Report(
      const std::vector<ReportEvaluationRequest>& parts);

  const RankShared& shared_;
  const uint32_t rank_;
  TrainingModel& model_;
  const absl::Span<PulledBatch> places_;
  const Interrupt& leave_;

  // Set with evaluation.group_by, and the rank's samples.
  std::optional<GroupKey> group_key_;
  std::vector<uint64_t> samples_;
  std::optional<BatchAssembler> assembler_;
  // Otherwise the rank has some of the batches of the whole data.
  std::optional<Sampler> sampler_;
  std::unique_ptr<RankBatches> batch_source_;
  std::vector<absl::Span<const float>> parameters_;
  // Kept until the next evaluation, because calls borrow its batches.
  std::unique_ptr<BatchStream> stream_;
  uint64_t batches_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_EVALUATION_H_
