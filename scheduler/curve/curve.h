// The points of a job's learning curve, from its status at successive times.
#ifndef PAWL_SCHEDULER_CURVE_CURVE_H_
#define PAWL_SCHEDULER_CURVE_CURVE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// The values after a step. Tags: train/loss, train/samples_per_s, train/learning_rate,
// train/sparse_learning_rate, train/staleness_max, tables/rows, tables/parameter_bytes; in BOUNDED
// and ASYNC mode, of the pulls and pushes since the point before, train/clock_staleness_mean,
// train/clock_staleness_p99, train/update_staleness_mean, train/update_staleness_p99; eval/ with
// the names of ScoresOf (client_lib/evaluation/evaluation_scores.h), and eval/auc_error_max; and
// metrics/ with the names of the program's own figures.
struct CurvePoint {
  enum class Kind { kTraining, kEvaluation, kMetrics };
  Kind kind = Kind::kTraining;
  // kMetrics: the step that the program has given.
  uint64_t step = 0;
  // The samples trained on, and the seconds since the training started.
  uint64_t samples = 0;
  double train_s = 0;
  // An evaluation's wall-clock time; 0: when the point is recorded.
  double unix_s = 0;
  std::vector<std::pair<std::string, double>> values;
};

class Curve {
 public:
  // `continues`: the job has run in an earlier process. Its figures in `now` may be some seconds
  // old, or lost, so the first point has no rate. Evaluations in `now` are in the files of that
  // process; or, if it is known, those up to the step of the latest one there (0: none is).
  explicit Curve(const GetStatusResponse& now, bool continues = false,
                 std::optional<uint64_t> last_evaluation_step = std::nullopt);

  // The points since the last call: at most one point of training, if steps have ended, one of
  // each evaluation, and one of the metrics of each step.
  std::vector<CurvePoint> Next(const GetStatusResponse& status);

 private:
  void NoteEvaluation(const EvaluationResult& result);
  void AddMetrics(const GetStatusResponse& status, std::vector<CurvePoint>& points);

  // False until the first point of a job that had steps before: the samples that a restarted
  // scheduler begins with are older than its time.
  bool has_rate_;
  uint64_t steps_;
  uint64_t samples_;
  double train_s_;
  StalenessHistogram clock_staleness_;
  StalenessHistogram update_staleness_;
  // The latest evaluation; 0: none.
  uint64_t evaluation_ = 0;
  uint64_t evaluation_step_ = 0;
  // The latest of each name: step and value.
  std::map<std::string, std::pair<uint64_t, double>> metrics_;
};

// Where the points are written. Used by one thread.
class CurveSink {
 public:
  virtual ~CurveSink() = default;

  // Written at once, and not synced. `unix_s`: when the point was recorded, which is
  // its time unless it has one.
  virtual absl::Status Add(double unix_s, const CurvePoint& point) = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_CURVE_H_
