#include "worker/train/rank_evaluation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "worker/data/sampler.h"
#include "worker/process/rendezvous.h"
#include "worker/train/evaluation_report.h"

namespace pawl {

absl::StatusOr<bool> RankEvaluation::Run(uint64_t step) {
  const uint64_t number = shared_.plan.EvaluationNumber(step);
  if (!IsSync(shared_.job.consistency().mode())) {
    // Evaluates, and keeps the best checkpoint, only after all earlier pushes have been applied.
    PAWL_RETURN_IF_ERROR(Meet(shared_.rendezvous, absl::StrCat("evaluation-", number),
                              shared_.logical_workers, rank_, leave_));
  }
  const SampleRange share = EvaluationShard(shared_.eval->size(), rank_, shared_.logical_workers);
  const uint64_t batches = (share.size() + kEvaluationBatchSize - 1) / kEvaluationBatchSize;
  stream_ = std::make_unique<BatchStream>(0, batches, [this, share](uint64_t i, Batch* batch) {
    const uint64_t begin = share.begin + i * kEvaluationBatchSize;
    return assembler_.AssembleRange(
        SampleRange{begin, std::min(begin + kEvaluationBatchSize, share.end)}, batch);
  });

  EvaluationReport report(/*with_scores=*/model_.loss() == LOGISTIC);
  Predictions predictions;
  const auto start = [&](uint64_t i) {
    return places_[i % places_.size()].Start(*stream_, step, shared_.evaluation_dense);
  };
  const uint64_t ahead = places_.size() - 1;
  for (uint64_t i = 0; i < std::min(ahead, batches); ++i) PAWL_RETURN_IF_ERROR(start(i));
  for (uint64_t i = 0; i < batches; ++i) {
    PulledBatch& pulled = places_[i % places_.size()];
    PAWL_RETURN_IF_ERROR(pulled.Await(&parameters_));
    PAWL_RETURN_IF_ERROR(leave_.reason());
    if (i + ahead < batches) PAWL_RETURN_IF_ERROR(start(i + ahead));
    PAWL_RETURN_IF_ERROR(model_.Predict(pulled.batch(), parameters_, &predictions));
    if (const absl::Status status = report.Add(pulled.batch(), predictions); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), OverflowHint(shared_.job)));
    }
    pulled.Release();
  }

  ReportEvaluationRequest header;
  header.set_evaluation(number);
  header.set_step(step);
  header.set_rank(rank_);
  header.set_final(step == shared_.plan.total_steps());
  PAWL_ASSIGN_OR_RETURN(const ReportEvaluationResponse response, Report(report.TakeParts(header)));
  return response.stop();
}

absl::StatusOr<ReportEvaluationResponse> RankEvaluation::Report(
    const std::vector<ReportEvaluationRequest>& parts) {
  absl::StatusOr<ReportEvaluationResponse> response =
      absl::InternalError("an evaluation without parts");
  for (int attempt = 0; attempt < kMaxRendezvousAttempts; ++attempt) {
    // Only the last part waits for the other ranks.
    for (const ReportEvaluationRequest& part : parts) {
      auto answer = shared_.rendezvous.ReportEvaluation(part);
      response =
          Await(answer, kRendezvousTimeout + kLibraryGrace, leave_, "report of the evaluation");
      if (!response.ok()) break;
    }
    // A scheduler that restarted meanwhile lacks the earlier parts and asks for all of them again.
    if (!absl::IsFailedPrecondition(response.status()) || parts.size() == 1) break;
  }
  return response;
}

}  // namespace pawl
