// One vector for each categorical field of a sample.
#ifndef PAWL_WORKER_MODEL_NETWORKS_EMBEDDING_PART_H_
#define PAWL_WORKER_MODEL_NETWORKS_EMBEDDING_PART_H_

#include <cstddef>
#include <cstdint>

#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/sparse_columns.h"

namespace pawl {

// A field's vector is the sum of value * row over its entries, for the columns `vector` of rows.
class EmbeddingPart {
 public:
  EmbeddingPart(uint32_t field_count, const SparseColumns& vector)
      : field_count_(field_count), vector_(vector) {}

  size_t dim() const { return vector_.count; }
  // Columns of all vectors of a sample.
  size_t width() const { return field_count_ * dim(); }

  // Sets vectors[samples, width()].
  void Forward(ModelStep& step, Matrix vectors) const {
    vector_.Pool(step, PoolOver::kField, vectors);
  }
  void Backward(ModelStep& step, ConstMatrix vectors_gradient) const {
    vector_.PoolBackward(step, PoolOver::kField, vectors_gradient);
  }

 private:
  const uint32_t field_count_;
  const SparseColumns vector_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_EMBEDDING_PART_H_
