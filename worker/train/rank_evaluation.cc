#include "worker/train/rank_evaluation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "client_lib/job/group_field.h"
#include "worker/data/sampler.h"
#include "worker/process/rendezvous.h"
#include "worker/train/evaluation_report.h"

namespace pawl {
namespace {

// The size of the batches of an evaluation: at most kEvaluationBatchSize and a window, and such
// that all ranks have almost the same number of samples.
uint64_t EvaluationBatch(uint64_t samples, uint64_t ranks, uint64_t window_samples) {
  const uint64_t largest = window_samples == 0
                               ? kEvaluationBatchSize
                               : std::min<uint64_t>(kEvaluationBatchSize, window_samples);
  const uint64_t most = ranks * largest;
  const uint64_t batches = ranks * ((samples + most - 1) / most);
  return (samples + batches - 1) / batches;
}

}  // namespace

absl::StatusOr<bool> RankEvaluation::Run(uint64_t step) {
  ReportEvaluationRequest header;
  header.set_evaluation(shared_.plan.EvaluationNumber(step));
  header.set_step(step);
  header.set_rank(rank_);
  if (!IsSync(shared_.job.consistency().mode())) {
    // Evaluates, and keeps the best checkpoint, only after all earlier pushes have been applied.
    ReportEvaluationRequest arrival = header;
    arrival.set_arrives(true);
    PAWL_RETURN_IF_ERROR(Report({arrival}).status());
  }
  PAWL_RETURN_IF_ERROR(OpenShare());

  const uint32_t labels = shared_.eval->shape().label_count;
  const bool is_exact = shared_.eval->size() <=
                        MaxExactSamples(shared_.job.evaluation().max_exact_samples()) / labels;
  const uint32_t ndcg_at = shared_.job.evaluation().ndcg_at();
  std::vector<EvaluationReport> reports;
  for (uint32_t label = 0; label < labels; ++label) {
    reports.emplace_back(model_.loss() != LOGISTIC ? ReportedScores::kNone
                         : is_exact                ? ReportedScores::kExact
                                                   : ReportedScores::kRounded,
                         ndcg_at == 0 ? kDefaultNdcgAt : ndcg_at, label);
  }
  Predictions predictions;
  std::vector<uint64_t> groups;
  const auto start = [&](uint64_t i) {
    return places_[i % places_.size()].Start(*stream_, step, shared_.evaluation_dense);
  };
  const uint64_t ahead = places_.size() - 1;
  for (uint64_t i = 0; i < std::min(ahead, batches_); ++i) PAWL_RETURN_IF_ERROR(start(i));
  for (uint64_t i = 0; i < batches_; ++i) {
    PulledBatch& pulled = places_[i % places_.size()];
    PAWL_RETURN_IF_ERROR(pulled.Await(&parameters_));
    PAWL_RETURN_IF_ERROR(leave_.reason());
    if (i + ahead < batches_) PAWL_RETURN_IF_ERROR(start(i + ahead));
    PAWL_RETURN_IF_ERROR(model_.Predict(pulled.batch(), parameters_, &predictions));
    groups.clear();
    if (group_key_.has_value()) {
      for (uint64_t s = 0; s < pulled.batch().samples; ++s)
        groups.push_back(
            shared_.eval_in_memory->GroupOf(samples_[i * kEvaluationBatchSize + s], *group_key_));
    }
    for (uint32_t label = 0; label < labels; ++label) {
      // With squared loss only the first label is known to be a relevance.
      const bool has_groups = label == 0 || model_.loss() == LOGISTIC;
      const absl::Status status = reports[label].Add(
          pulled.batch(), label == 0 ? predictions : predictions.other_labels[label - 1],
          has_groups ? absl::MakeSpan(groups) : absl::Span<const uint64_t>());
      if (!status.ok()) {
        return absl::Status(status.code(),
                            absl::StrCat(status.message(), OverflowHint(shared_.job)));
      }
    }
    pulled.Release();
  }

  header.set_final(step == shared_.plan.total_steps());
  header.set_labels(labels);
  std::vector<ReportEvaluationRequest> parts;
  for (EvaluationReport& report : reports) {
    for (ReportEvaluationRequest& part : report.TakeParts(header)) parts.push_back(std::move(part));
  }
  // Windows of streamed data take memory that training needs.
  batch_source_.reset();
  PAWL_ASSIGN_OR_RETURN(const ReportEvaluationResponse response, Report(parts));
  return response.stop();
}

void RankEvaluation::Cancel() {
  if (batch_source_ != nullptr) batch_source_->Cancel();
  if (stream_ != nullptr) stream_->End();
}

bool RankEvaluation::IsIdle() const {
  return stream_ == nullptr ||
         (stream_->HasEnded() && (batch_source_ == nullptr || batch_source_->IsIdle()));
}

absl::Status RankEvaluation::OpenShare() {
  // The former evaluation has used all its batches, so this does not wait.
  stream_.reset();
  if (!shared_.job.evaluation().group_by().empty()) {
    PAWL_RETURN_IF_ERROR(FindGroups());
    batches_ = (samples_.size() + kEvaluationBatchSize - 1) / kEvaluationBatchSize;
    stream_ = std::make_unique<BatchStream>(0, batches_, [this](uint64_t i, Batch* batch) {
      const uint64_t begin = i * kEvaluationBatchSize;
      const uint64_t size = std::min<uint64_t>(kEvaluationBatchSize, samples_.size() - begin);
      return assembler_->Assemble(absl::MakeSpan(samples_).subspan(begin, size), batch);
    });
    return absl::OkStatus();
  }
  if (!sampler_.has_value()) {
    PAWL_ASSIGN_OR_RETURN(
        sampler_, Sampler::Create(
                      {.samples = shared_.eval->size(),
                       .batch_size = EvaluationBatch(shared_.eval->size(), shared_.logical_workers,
                                                     shared_.job.data().window_samples()),
                       .keep_order = true}));
  }
  const SampleRange share = ShareOf(sampler_->epochs().StepsOf(0), rank_, shared_.logical_workers);
  batches_ = share.size();
  batch_source_ = shared_.eval->OpenRank(*sampler_, /*rank=*/0, share.end, {model_.layout(), {}});
  stream_ = std::make_unique<BatchStream>(0, batches_, [this, share](uint64_t i, Batch* batch) {
    return batch_source_->Assemble(share.begin + i, batch);
  });
  return absl::OkStatus();
}

absl::Status RankEvaluation::FindGroups() {
  if (group_key_.has_value()) return absl::OkStatus();
  const Dataset& eval = *shared_.eval_in_memory;
  const std::string& group_by = shared_.job.evaluation().group_by();
  PAWL_ASSIGN_OR_RETURN(const GroupKey key, FindGroupKey(shared_.job.data(), group_by));
  samples_ = eval.SamplesOfGroups(key, rank_, shared_.logical_workers);
  assembler_.emplace(eval.store(), FieldLookup{model_.layout(), {}});
  group_key_ = key;
  return absl::OkStatus();
}

absl::StatusOr<ReportEvaluationResponse> RankEvaluation::Report(
    const std::vector<ReportEvaluationRequest>& parts) {
  absl::StatusOr<ReportEvaluationResponse> response =
      absl::InternalError("an evaluation without parts");
  for (int attempt = 0; attempt < kMaxRendezvousAttempts; ++attempt) {
    // An arrival and the last part wait for the other ranks.
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
