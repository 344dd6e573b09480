// The entries of a field set one by one, for parts of a network that do not sum them.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_ENTRY_ROWS_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_ENTRY_ROWS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/parts/sparse_columns.h"

namespace pawl {

// Returns value * row for each entry, [entries, columns.count]; it lives until the end of the step.
// REQUIRES: the table's parameters have been awaited; the set's pooling is kMax or kNone.
absl::StatusOr<Matrix> RowsOfEntries(ModelStep& step, const SparseColumns& columns);

// Sets, or adds to, the gradients of the rows.
absl::Status RowsOfEntriesBackward(ModelStep& step, const SparseColumns& columns,
                                   ConstMatrix gradient);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_ENTRY_ROWS_H_
