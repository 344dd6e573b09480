// Logistic regression: w . x + b over all entries and numeric inputs.
#ifndef PAWL_WORKER_MODEL_NETWORKS_LOGISTIC_REGRESSION_H_
#define PAWL_WORKER_MODEL_NETWORKS_LOGISTIC_REGRESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/linear_part.h"
#include "worker/model/table_list.h"

namespace pawl {

class LogisticRegressionNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::LogisticRegression& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  LogisticRegressionNetwork(const Model::LogisticRegression& spec, const ModelInputs& inputs,
                            TableList& tables);

  LinearPart linear_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_LOGISTIC_REGRESSION_H_
