// One rank's share of an evaluation, as messages to the scheduler.
#ifndef PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_
#define PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "worker/data/batch.h"
#include "worker/model/predictions.h"

namespace pawl {

// Keeps a message below 1 MiB: a score takes 4 bytes and its two counts at most 5 each.
inline constexpr size_t kMaxScoresInPart = 65536;

// What a report has besides sums.
enum class ReportedScores {
  kNone,
  // Every score, as the exact area under the ROC curve requires: 8 bytes a sample.
  kExact,
  // Scores rounded to 12 significant bits: at most 8 MiB.
  kRounded,
};

// Collects a model's predictions for the samples of a share. Not thread-safe.
class EvaluationReport {
 public:
  // `group_field`: the field whose first category is a sample's group, for GAUC; its scores are
  // exact in any case, with 16 bytes a sample. REQUIRES: the share has all samples of its groups.
  explicit EvaluationReport(ReportedScores scores,
                            std::optional<FieldLayout::Place> group_field = {})
      : reported_(scores), group_field_(group_field) {}

  // INTERNAL if a prediction is not finite.
  absl::Status Add(const Batch& batch, const Predictions& predictions);

  // Returns the parts in order, at least one, and empties the report. Every part copies the fields
  // of `header`.
  std::vector<ReportEvaluationRequest> TakeParts(const ReportEvaluationRequest& header);

 private:
  // A sample as the member of a group.
  struct Member {
    uint64_t group;
    // As in scores_.
    uint64_t score;
  };

  void AddRounded(uint32_t order, bool positive);
  // Calls add(order, counts of labels 0 and 1) for each distinct score, ascending.
  template <typename Function>
  void ForEachScore(const Function& add);
  void SetGroups(ReportEvaluationRequest& part);

  const ReportedScores reported_;
  const std::optional<FieldLayout::Place> group_field_;
  EvaluationSums sums_;
  // kExact: (order of the score) * 2^32 + (label is positive).
  std::vector<uint64_t> scores_;
  // kRounded: for each possible score the counts of labels 0 and 1; empty before the first.
  std::vector<uint32_t> counts_;
  std::vector<Member> members_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_
