// The pooling of a history by attention to a target.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_ATTENTION_POOLING_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_ATTENTION_POOLING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/networks/parts/sparse_columns.h"
#include "worker/model/table_list.h"

namespace pawl {

// The sum over the entries of a history of a(v, t) * v, where v is the entry's vector, t the
// sample's target, and a an MLP over (v, t, v - t, v * t) with the layers "<name>/..." (Zhou et al.
// 2018, equation 3, without normalisation). Not thread-safe.
class AttentionPooling {
 public:
  // `vectors`: the columns of the history's rows.
  AttentionPooling(const std::string& name, const SparseColumns& vectors,
                   const std::vector<uint32_t>& widths, TableList& tables);

  size_t dim() const { return vectors_.count; }

  // Sets pooled[samples, dim()]. target[samples, dim()] stays unchanged until Backward.
  absl::Status Forward(ModelStep& step, ConstMatrix target, Matrix pooled);
  // Adds to target_gradient. REQUIRES: the last Forward was of the same step.
  absl::Status Backward(ModelStep& step, ConstMatrix pooled_gradient, Matrix target_gradient);

 private:
  // The entries as rows of a matrix with their vectors, in the history's field, weighted.
  Entries Weighted(const ModelStep& step) const;

  const SparseColumns vectors_;
  MlpLayers mlp_;
  // From the last Forward: the vectors, the MLP's inputs, and the weights of the entries.
  Matrix rows_;
  Matrix inputs_;
  Matrix weights_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_ATTENTION_POOLING_H_
