// One rank's share of an evaluation, as messages to the scheduler.
#ifndef PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_
#define PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/scheduler.pb.h"
#include "worker/data/batch.h"
#include "worker/model/predictions.h"
#include "worker/train/ndcg.h"

namespace pawl {

// Keeps a message below 1 MiB: a score takes 4 bytes and its two counts at most 5 each.
inline constexpr size_t kMaxScoresInPart = 65536;

// The default of evaluation.ndcg_at.
inline constexpr uint32_t kDefaultNdcgAt = 10;

// The scores in a report, besides sums.
enum class ReportedScores {
  kNone,
  // Every score, as the exact area under the ROC curve requires: 8 bytes a sample.
  kExact,
  // Scores rounded to 12 significant bits: at most 8 MiB.
  kRounded,
};

// Collects a model's predictions of one label for the samples of a share. Not thread-safe.
class EvaluationReport {
 public:
  // `ndcg_at`: see NdcgCalculator. `label`: its place among those of a sample.
  explicit EvaluationReport(ReportedScores scores, uint32_t ndcg_at = kDefaultNdcgAt,
                            uint32_t label = 0)
      : reported_(scores), ndcg_at_(ndcg_at), label_(label) {}

  // `groups`: of the batch's samples, or empty. The scores of groups are exact in any case, with 16
  // bytes a sample: NDCG, and GAUC with scores to report. INTERNAL if a prediction is not finite.
  // REQUIRES: the predictions are those of the label. The share has all samples of its groups. With
  // ReportedScores::kNone the labels of samples in groups are 0 to kMaxRelevance.
  absl::Status Add(const Batch& batch, const Predictions& predictions,
                   absl::Span<const uint64_t> groups = {});

  // Returns the parts in order, at least one, and empties the report. Every part copies the fields
  // of `header`.
  std::vector<ReportEvaluationRequest> TakeParts(const ReportEvaluationRequest& header);

 private:
  // A sample as the member of a group.
  struct Member {
    uint64_t group;
    RankedSample sample;
  };

  void AddRounded(uint32_t order, bool positive);
  // Calls add(order, counts of labels 0 and 1) for each distinct score, ascending.
  template <typename Function>
  void ForEachScore(const Function& add);
  void SetGroups(ReportEvaluationRequest& part);

  const ReportedScores reported_;
  const uint32_t ndcg_at_;
  const uint32_t label_;
  EvaluationSums sums_;
  // kExact: (order of the score) * 2^32 + (label is positive).
  std::vector<uint64_t> scores_;
  // kRounded: for each possible score the counts of labels 0 and 1; empty before the first.
  std::vector<uint32_t> counts_;
  std::vector<Member> members_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_
