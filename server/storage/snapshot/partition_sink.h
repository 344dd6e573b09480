// Builds partitions from a recovered data directory.
#ifndef PAWL_SERVER_STORAGE_SNAPSHOT_PARTITION_SINK_H_
#define PAWL_SERVER_STORAGE_SNAPSHOT_PARTITION_SINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "proto/replication.pb.h"
#include "server/shard/partition.h"
#include "server/storage/recovery.h"

namespace pawl {

// Snapshots are those of partition_snapshot.h, records are serialized LogEntries. Not thread-safe.
class PartitionSink final : public RecoverySink {
 public:
  // `should_continue`: LoadSnapshot calls it before each block too; false ends it with CANCELLED.
  explicit PartitionSink(
      const PartitionOptions& options, std::function<bool()> should_continue = [] { return true; })
      : options_(options), should_continue_(std::move(should_continue)) {}

  absl::Status LoadSnapshot(uint32_t partition, uint64_t index, BlockFileReader& snapshot) override;
  absl::Status Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                      const std::shared_ptr<const void>& owner) override;
  bool ShouldContinue() override { return should_continue_(); }

  // The recovered partitions, ascending. Call it once, at the end.
  std::vector<std::unique_ptr<Partition>> TakePartitions();

 private:
  // One schema for all partitions that have the table.
  absl::StatusOr<std::shared_ptr<const TableSchema>> SchemaOf(const TableSpec& spec);

  const PartitionOptions options_;
  const std::function<bool()> should_continue_;
  absl::btree_map<uint32_t, std::unique_ptr<Partition>> partitions_;
  absl::btree_map<uint32_t, std::shared_ptr<const TableSchema>> tables_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SNAPSHOT_PARTITION_SINK_H_
