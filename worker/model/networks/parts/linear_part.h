// A weighted sum of all inputs, which most models have.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_LINEAR_PART_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_LINEAR_PART_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/parts/sparse_columns.h"
#include "worker/model/table_list.h"

namespace pawl {

// bias + sum over entries of value * weight[key] + numerics . weights. The weights of keys are
// columns of rows, if there are any. Dense tables, initially zero: "linear/numeric"
// [numeric_count] if there are numeric inputs, and "bias" [1] if requested.
class LinearPart {
 public:
  enum class Bias { kNo, kYes };

  LinearPart(const DataShape& shape, std::vector<SparseColumns> weights, Bias bias,
             TableList& tables);

  // Sets outputs[samples, 1].
  absl::Status Forward(ModelStep& step, Matrix outputs) const;
  absl::Status Backward(ModelStep& step, ConstMatrix output_gradients) const;

 private:
  const uint32_t numeric_count_;
  const std::vector<SparseColumns> weights_;
  std::optional<size_t> numeric_table_;
  std::optional<size_t> bias_table_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_LINEAR_PART_H_
