// Converts log entries and the segments of pushes to calls of a partition.
#ifndef PAWL_SERVER_REPLICATION_CHANGE_H_
#define PAWL_SERVER_REPLICATION_CHANGE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/rpc/codec.h"
#include "server/replication/log_entry.h"
#include "server/shard/partition.h"

namespace pawl {

// Whether the segment of a push assigns: its effect is neither APPLY_GRADIENT nor
// SET_LEARNING_RATES.
bool IsAssignment(const SegmentView& segment);
// What it assigns. INVALID_ARGUMENT: an unknown effect. REQUIRES: IsAssignment.
absl::StatusOr<Assignment> AssignmentOf(const SegmentView& segment);
// The learning rates that it sets. INVALID_ARGUMENT: malformed. REQUIRES: its effect is
// SET_LEARNING_RATES.
absl::StatusOr<std::vector<TableRate>> LearningRatesOf(const SegmentView& segment);

// Applies change number partition.log_index() + 1 to a replica. `owner` keeps the change's memory
// alive. `table` is the schema for kTableCreated. An error means that the replica differs from its
// primary's: it was not changed, and nothing more can be applied to it.
absl::Status ApplyChange(const ChangeView& change, const std::shared_ptr<const void>& owner,
                         std::shared_ptr<const TableSchema> table, Partition& partition);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_CHANGE_H_
