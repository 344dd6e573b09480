// Collects the ranks' parts of an evaluation.
#ifndef PAWL_SCHEDULER_EVALUATION_EVALUATION_COLLECTOR_H_
#define PAWL_SCHEDULER_EVALUATION_EVALUATION_COLLECTOR_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/evaluation/evaluation_metrics.h"

namespace pawl {

// The limit on distinct scores of all ranks and labels for one evaluation: 12 bytes each, and as
// much again while they are merged.
inline constexpr uint64_t kMaxEvaluationScores = 1u << 25;
inline constexpr uint32_t kMaxEvaluationParts = 65536;

// Collects the parts of one evaluation at a time. Not thread-safe.
class EvaluationCollector {
 public:
  // `ranks`: V of the job.
  EvaluationCollector(uint32_t ranks, Loss loss)
      : ranks_(ranks), loss_(loss), finished_(ranks), arrived_(ranks), shares_(ranks) {}

  // Adds a rank's arrival, or a part: a rank with parts has arrived. A repeated part counts once.
  // INVALID_ARGUMENT names the field; OUT_OF_RANGE: an impossible rank; FAILED_PRECONDITION:
  // another evaluation is being collected, or the last part of a rank's label comes while others,
  // or those of the label before it, are missing (the previous scheduler had collected them: the
  // rank sends all parts again); RESOURCE_EXHAUSTED: beyond the limit on scores. An error changes
  // nothing.
  absl::Status Add(const ReportEvaluationRequest& part);

  // Drops the arrival and the parts of the rank in the present evaluation: its next host reports
  // all of them.
  void Forget(uint32_t rank);

  // The rank takes no more steps: evaluations do not wait for it.
  void Finish(uint32_t rank) { finished_[rank] = true; }

  // Drops all arrivals and parts of the present evaluation; the number grows.
  void Clear() { Take(); }

  // Sets the number of the evaluation to collect. REQUIRES: nothing was added.
  void StartAt(uint64_t evaluation) { evaluation_ = evaluation; }

  // The evaluation being collected; 1 at first.
  uint64_t evaluation() const { return evaluation_; }
  // The step of the present evaluation; 0: no rank has arrived.
  uint64_t step() const { return empty() ? 0 : step_; }
  // Whether no rank has arrived.
  bool empty() const;
  // Whether all ranks that have not finished have arrived. False if all have finished.
  bool all_arrived() const;
  // Whether all parts of the ranks that have not finished have been added. False if all have.
  bool complete() const;
  // Returns the complete shares and starts the next evaluation.
  EvaluationInput Take();

 private:
  // A rank's predictions of one label.
  struct Share {
    bool complete() const { return !parts.empty() && parts.size() == parts_total; }

    // The parts that have come, by number, and how many there are.
    std::map<uint32_t, std::vector<EvaluationShare::Score>> parts;
    uint32_t parts_total = 0;
    uint64_t positives_and_negatives = 0;
    // Distinct scores in all parts.
    uint64_t scores = 0;
    EvaluationShare sums;
  };

  // Whether the rank exists and the evaluation is the present one.
  absl::Status CheckRank(const ReportEvaluationRequest& part) const;
  // Whether the part's label and number are possible.
  absl::Status CheckPlace(const ReportEvaluationRequest& part) const;
  bool has_parts() const;
  // The last part of a rank's label comes after the others and after the label before it.
  absl::Status CheckOrder(const ReportEvaluationRequest& part, const Share& share) const;
  // With the last part, the parts count all samples, and their scores ascend.
  absl::Status CheckLast(const ReportEvaluationRequest& part, const Share& share,
                         const std::vector<EvaluationShare::Score>& scores, uint64_t counted) const;
  EvaluationInput TakeLabel(uint32_t label);

  const uint32_t ranks_;
  const Loss loss_;
  uint64_t evaluation_ = 1;
  // Whether the added parts have rounded scores.
  bool rounded_scores_ = false;
  uint64_t scores_ = 0;
  // By rank.
  std::vector<bool> finished_;
  std::vector<bool> arrived_;
  // The step of the last arrival or part.
  uint64_t step_ = 0;
  // By label, then by rank. The first part decides how many labels there are.
  std::vector<Share> shares_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_EVALUATION_EVALUATION_COLLECTOR_H_
