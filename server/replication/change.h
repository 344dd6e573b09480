// Converts log entries to calls of a partition.
#ifndef PAWL_SERVER_REPLICATION_CHANGE_H_
#define PAWL_SERVER_REPLICATION_CHANGE_H_

#include <memory>

#include "absl/status/status.h"
#include "server/replication/log_entry.h"
#include "server/shard/partition.h"

namespace pawl {

// Applies change number partition.log_index() + 1 to a replica. `owner` keeps the change's memory
// alive. `table` is the schema for kTableCreated. An error means that the replica differs from its
// primary's: it was not changed, and nothing more can be applied to it.
absl::Status ApplyChange(const ChangeView& change, const std::shared_ptr<const void>& owner,
                         std::shared_ptr<const TableSchema> table, Partition& partition);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_CHANGE_H_
