// The cross layers of DCN v2.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_CROSS_LAYERS_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_CROSS_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/table_list.h"

namespace pawl {

// x_(l+1) = x_0 * (x_l W_l + b_l) + x_l, where * is by element (Wang et al. 2021, equation 1).
// Layer l has the tables "cross/l/w" [width, width] (Xavier), or with a rank "cross/l/v" [width,
// rank] and "cross/l/u" [rank, width], whose product is W_l, and "cross/l/bias" [width] (zero).
class CrossLayers {
 public:
  CrossLayers(size_t width, uint32_t layers, uint32_t rank, TableList& tables);

  // Returns the result, which lives until the end of the step, as `input` must.
  absl::StatusOr<Matrix> Forward(ModelStep& step, ConstMatrix input);
  // Sets input_gradient, and changes output_gradient. REQUIRES: the last Forward was of the same
  // step.
  absl::Status Backward(ModelStep& step, Matrix output_gradient, Matrix input_gradient) const;

 private:
  struct Layer {
    // With a rank v and u, else the weight alone.
    std::vector<size_t> weight_tables;
    size_t bias_table;
    // From the last Forward: the layer's input, x_l V, and x_l W + b.
    ConstMatrix input;
    Matrix projected;
    Matrix product;
  };

  ConstMatrix WeightOf(const ModelStep& step, const Layer& layer, size_t i) const;
  // Sets the gradients of the layer's tables, and adds that of its input to *input_gradient.
  absl::Status LayerBackward(ModelStep& step, const Layer& layer, ConstMatrix product_gradient,
                             Matrix input_gradient) const;

  const size_t width_;
  const size_t rank_;
  std::vector<Layer> layers_;
  ConstMatrix x0_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_CROSS_LAYERS_H_
