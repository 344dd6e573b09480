#include "worker/model/networks/parts/entry_rows.h"

#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<Matrix> RowsOfEntries(ModelStep& step, const SparseColumns& columns) {
  const Entries& entries = step.entry_lists[columns.field_set].rows;
  PAWL_ASSIGN_OR_RETURN(const Matrix rows,
                        step.workspace.AllocateMatrix(entries.entries, columns.count));
  step.stream.PoolRows(entries, PoolOver::kField, columns.rows(step), rows);
  return rows;
}

absl::Status RowsOfEntriesBackward(ModelStep& step, const SparseColumns& columns,
                                   ConstMatrix gradient) {
  return columns.BackwardOf(step, step.entry_lists[columns.field_set].rows, PoolOver::kField,
                            gradient);
}

}  // namespace pawl
