// The points of a job's learning curve, from its status at successive times.
#ifndef PAWL_SCHEDULER_CURVE_CURVE_H_
#define PAWL_SCHEDULER_CURVE_CURVE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/scheduler.pb.h"

namespace pawl {

// What is known after a step. Tags: train/loss, train/samples_per_s, train/learning_rate,
// train/sparse_learning_rate, train/staleness_max, tables/rows, tables/parameter_bytes; in BOUNDED
// and ASYNC mode, of the pulls and pushes since the point before, train/clock_staleness_mean,
// train/clock_staleness_p99, train/update_staleness_mean, train/update_staleness_p99; eval/ with
// the names of ScoresOf (client_lib/evaluation/evaluation_scores.h), and eval/auc_error_max.
struct CurvePoint {
  bool is_evaluation = false;
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
  // `now`: evaluations in it are in the files of an earlier process.
  explicit Curve(const GetStatusResponse& now);

  // What is new since the last call: at most one point of training, if steps have ended, and one
  // of each evaluation.
  std::vector<CurvePoint> Next(const GetStatusResponse& status);

 private:
  void NoteEvaluation(const EvaluationResult& result);

  uint64_t steps_;
  uint64_t samples_;
  double train_s_;
  StalenessHistogram clock_staleness_;
  StalenessHistogram update_staleness_;
  // The latest evaluation; 0: none.
  uint64_t evaluation_ = 0;
  uint64_t evaluation_step_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_CURVE_H_
