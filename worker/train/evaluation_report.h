// One rank's share of an evaluation, as messages to the scheduler.
#ifndef PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_
#define PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "worker/data/batch.h"
#include "worker/model/predictions.h"

namespace pawl {

// Keeps a message below 1 MiB: a score takes 4 bytes and its two counts at most 5 each.
inline constexpr size_t kMaxScoresInPart = 65536;

// Collects a model's predictions for the samples of a share. Not thread-safe.
class EvaluationReport {
 public:
  // `with_scores`: keeps every score, as the area under the ROC curve requires.
  explicit EvaluationReport(bool with_scores) : with_scores_(with_scores) {}

  // INTERNAL if a prediction is not finite.
  absl::Status Add(const Batch& batch, const Predictions& predictions);

  // Returns the parts in order, at least one, and empties the report. Every part copies the fields
  // of `header`.
  std::vector<ReportEvaluationRequest> TakeParts(const ReportEvaluationRequest& header);

 private:
  const bool with_scores_;
  EvaluationSums sums_;
  // (order of the score) * 2^32 + (label is positive).
  std::vector<uint64_t> scores_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_EVALUATION_REPORT_H_
