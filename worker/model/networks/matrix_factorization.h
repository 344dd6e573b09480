// Matrix factorization with biases (Koren et al. 2009): mean + b_user + b_item + p_user . q_item.
// The biases are the weights of keys, the factors their vectors.
#ifndef PAWL_WORKER_MODEL_NETWORKS_MATRIX_FACTORIZATION_H_
#define PAWL_WORKER_MODEL_NETWORKS_MATRIX_FACTORIZATION_H_

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

class MatrixFactorizationNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::MatrixFactorization& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  MatrixFactorizationNetwork(const Model::MatrixFactorization& spec, const ModelInputs& inputs,
                             TableList& tables);

  const SparseParts columns_;
  LinearPart linear_;
  EmbeddingPart embedding_;
  const float mean_;
  // From the last Forward.
  Matrix vectors_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_MATRIX_FACTORIZATION_H_
