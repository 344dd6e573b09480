// Reads partition snapshots of format 1, the predecessor of format 2.
#ifndef PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_1_H_
#define PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_1_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "server/shard/partition.h"

namespace pawl {

// Like PartitionLoader, for a complete snapshot of format 1 (partition_format_1.md).
absl::StatusOr<Partition> LoadFormat1(uint32_t index, const PartitionOptions& options,
                                      const ByteView& bytes);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_1_H_
