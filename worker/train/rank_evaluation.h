// A rank's part in the evaluations of its job.
#ifndef PAWL_WORKER_TRAIN_RANK_EVALUATION_H_
#define PAWL_WORKER_TRAIN_RANK_EVALUATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/scheduler.pb.h"
#include "worker/data/batch_assembler.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/batch_stream.h"
#include "worker/train/pulled_batch.h"
#include "worker/train/rank_shared.h"

namespace pawl {

// Samples that a rank evaluates at a time.
inline constexpr uint64_t kEvaluationBatchSize = 8192;

// For the rank's thread.
class RankEvaluation {
 public:
  // All of it outlives it. `places`: two at least, released whenever Run is called. REQUIRES:
  // shared.eval is not null.
  RankEvaluation(const RankShared& shared, uint32_t rank, TrainingModel& model,
                 absl::Span<PulledBatch> places, const Interrupt& leave)
      : shared_(shared),
        rank_(rank),
        model_(model),
        places_(places),
        leave_(leave),
        assembler_(*shared.eval) {}

  // The rank's share of the evaluation that comes after so many steps, its report and the job's
  // answer. True: no step is to follow. An error leaves calls under way.
  absl::StatusOr<bool> Run(uint64_t step);

 private:
  absl::StatusOr<ReportEvaluationResponse> Report(
      const std::vector<ReportEvaluationRequest>& parts);

  const RankShared& shared_;
  const uint32_t rank_;
  TrainingModel& model_;
  const absl::Span<PulledBatch> places_;
  const Interrupt& leave_;

  BatchAssembler assembler_;
  std::vector<absl::Span<const float>> parameters_;
  // Its batches are borrowed by calls: it stays until the next evaluation.
  std::unique_ptr<BatchStream> stream_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_EVALUATION_H_
