// Factorization machine (Rendle 2010): a linear part plus the dot products of the vectors of all
// pairs of fields. Numeric inputs are only in the linear part.
#ifndef PAWL_WORKER_MODEL_NETWORKS_FACTORIZATION_MACHINE_H_
#define PAWL_WORKER_MODEL_NETWORKS_FACTORIZATION_MACHINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/embedding_part.h"
#include "worker/model/networks/parts/linear_part.h"
#include "worker/model/networks/parts/sparse_columns.h"
#include "worker/model/table_list.h"

namespace pawl {

class FactorizationMachineNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::FactorizationMachine& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  FactorizationMachineNetwork(const Model::FactorizationMachine& spec, const ModelInputs& inputs,
                              TableList& tables);

  const SparseParts columns_;
  LinearPart linear_;
  EmbeddingPart embedding_;
  // From the last Forward.
  Matrix vectors_;
  Matrix sums_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_FACTORIZATION_MACHINE_H_
