// Columns of a sparse table's rows, as a part of a network uses them.
#ifndef PAWL_WORKER_MODEL_NETWORKS_SPARSE_COLUMNS_H_
#define PAWL_WORKER_MODEL_NETWORKS_SPARSE_COLUMNS_H_

#include <cstddef>
#include <cstdint>

#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/table_list.h"

namespace pawl {

// `count` columns from column `begin` of a table's rows.
struct SparseColumns {
  size_t table = 0;
  size_t begin = 0;
  size_t count = 0;
  size_t row_width = 0;
  // If parts share a table, the first one in the forward pass waits for the parameters, and the
  // last one in the backward pass finishes the gradient.
  bool awaits = true;
  bool finishes = true;

  void Pool(ModelStep& step, PoolOver over, Matrix pooled) const {
    if (awaits) step.await(table);
    step.stream.PoolRows(step.entries, over,
                         {step.parameters[table] + begin, step.entries.keys, count, row_width},
                         pooled);
  }
  void PoolBackward(ModelStep& step, PoolOver over, ConstMatrix pooled_gradient) const {
    step.stream.PoolRowsBackward(
        step.entries, over, pooled_gradient,
        {step.gradients[table] + begin, step.entries.keys, count, row_width});
    if (finishes) step.finish(table);
  }
};

// A weight and a vector for each key. The weight's part comes first in both passes.
struct WeightAndVector {
  SparseColumns weight;
  SparseColumns vector;
};

// Adds the table "embedding", whose rows are the vector, initially noise, followed by the weight,
// initially 0: a key then costs one row to find and to send. If the optimizer couples the elements
// of a row, adds "linear" (width 1, initially zero) and "embedding" (width dim) instead, because a
// vector and a weight have gradients of different sizes.
WeightAndVector AddWeightAndVector(uint32_t dim, float init_stddev, TableList& tables);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_SPARSE_COLUMNS_H_
