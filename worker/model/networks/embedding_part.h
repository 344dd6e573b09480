// One vector for each categorical field of a sample.
#ifndef PAWL_WORKER_MODEL_NETWORKS_EMBEDDING_PART_H_
#define PAWL_WORKER_MODEL_NETWORKS_EMBEDDING_PART_H_

#include <cstddef>
#include <cstdint>

#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/table_list.h"

namespace pawl {

// The table "embedding" (sparse, normal). A field's vector is the sum of value * row over its
// entries.
class EmbeddingPart {
 public:
  EmbeddingPart(uint32_t field_count, uint32_t dim, float init_stddev, TableList& tables)
      : field_count_(field_count),
        dim_(dim),
        table_(tables.AddSparse("embedding", dim, NormalInitializer(init_stddev))) {}

  uint32_t dim() const { return dim_; }
  // Columns of all vectors of a sample.
  size_t width() const { return size_t{field_count_} * dim_; }

  // Sets vectors[samples, width()].
  void Forward(ModelStep& step, Matrix vectors) const {
    step.await(table_);
    step.stream.PoolRows(step.entries, PoolOver::kField,
                         {step.parameters[table_], step.entries.keys, dim_, dim_}, vectors);
  }
  void Backward(ModelStep& step, ConstMatrix vectors_gradient) const {
    step.stream.PoolRowsBackward(step.entries, PoolOver::kField, vectors_gradient,
                                 {step.gradients[table_], step.entries.keys, dim_, dim_});
    step.finish(table_);
  }

 private:
  const uint32_t field_count_;
  const uint32_t dim_;
  const size_t table_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_EMBEDDING_PART_H_
