// Evaluations and the program's own metrics as JSON, for metrics.json and pawlctl.
#ifndef PAWL_SCHEDULER_STATUS_EVALUATION_JSON_H_
#define PAWL_SCHEDULER_STATUS_EVALUATION_JSON_H_

#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"

namespace pawl {

// null for an infinity or NaN, which JSON lacks.
nlohmann::ordered_json JsonNumber(double value);

// An object with evaluation, step, samples and the scores that apply (ScoresOf); auc_error_max if
// the scores were rounded; groups and group_samples with gauc; time (Unix seconds), train_s and
// trained_samples if known; calibration_bins (a list of samples, mean_prediction, mean_label) if
// the result has them.
nlohmann::ordered_json EvaluationJson(const EvaluationResult& result);

// An object with an object of step and value for each name.
nlohmann::ordered_json UserMetricsJson(const GetStatusResponse& status);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_EVALUATION_JSON_H_
