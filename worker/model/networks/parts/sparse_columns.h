// Columns of a sparse table's rows, as a part of a network uses them.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_SPARSE_COLUMNS_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_SPARSE_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/job/field_layout.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/table_list.h"

namespace pawl {

// `count` columns from column `begin` of a table's rows, for the entries of a field set.
struct SparseColumns {
  size_t table = 0;
  size_t field_set = 0;
  size_t begin = 0;
  size_t count = 0;
  size_t row_width = 0;
  // If parts share a table, the first one in the forward pass waits for the parameters, and the
  // last one in the backward pass finishes the gradient.
  bool awaits = true;
  bool finishes = true;
  // In the backward pass an earlier part has set the gradients of these columns.
  bool adds = false;

  const Entries& entries(const ModelStep& step) const { return step.field_sets[field_set]; }
  ConstMatrix rows(const ModelStep& step) const {
    return {step.parameters[table] + begin, entries(step).keys, count, row_width};
  }

  // Waits for the table if it has to. Call it before rows() is read.
  void Await(ModelStep& step) const {
    if (awaits) step.await(table);
  }
  void Pool(ModelStep& step, PoolOver over, Matrix pooled) const {
    Await(step);
    step.stream.PoolRows(entries(step), over, rows(step), pooled);
  }
  absl::Status PoolBackward(ModelStep& step, PoolOver over, ConstMatrix pooled_gradient) const {
    return BackwardOf(step, entries(step), over, pooled_gradient);
  }
  // PoolBackward for other entries of the same keys.
  absl::Status BackwardOf(ModelStep& step, const Entries& entries, PoolOver over,
                          ConstMatrix pooled_gradient) const;
};

// By field set, in the order of the layout. If there are weights, their parts come first in both
// passes.
struct SparseParts {
  std::vector<SparseColumns> weights;
  std::vector<SparseColumns> vectors;
};

// Adds a table for each key set, under its name, with a vector for each key, initially noise.
SparseParts AddVectors(const FieldLayout& layout, uint32_t dim, float init_stddev,
                       TableList& tables);

// Does the same with a vector and a weight for each key. The weight, initially 0, follows the
// vector in the row: a key then costs one row to find and to send. If the optimizer couples the
// elements of a row, the weights have a table of their own, "linear" beside "embedding" and
// otherwise
// "<name>/linear", because a vector and a weight have gradients of different sizes.
SparseParts AddWeightsAndVectors(const FieldLayout& layout, uint32_t dim, float init_stddev,
                                 TableList& tables);

// Does the same with a weight alone, as in the second case.
std::vector<SparseColumns> AddWeights(const FieldLayout& layout, TableList& tables);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_SPARSE_COLUMNS_H_
