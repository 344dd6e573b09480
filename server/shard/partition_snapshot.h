// All of a partition's state as bytes: for new replicas, checkpoints, restarts and comparison.
// partition_snapshot_format.md tells the bytes.
#ifndef PAWL_SERVER_SHARD_PARTITION_SNAPSHOT_H_
#define PAWL_SERVER_SHARD_PARTITION_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client_lib/base/byte_view.h"
#include "server/shard/partition.h"

namespace pawl {

// Largest spec of a table in a snapshot, in bytes; those that TableSchema accepts are far smaller.
inline constexpr uint32_t kMaxTableSpecBytes = 64 << 10;

// Hands the snapshot to `sink` run by run; the bytes are there until the sink returns. Dense blocks are handed out
// where they lie. Partitions in equal states give equal bytes. There is no checksum in them: whoever
// sends or stores them adds his own.
void SavePartition(const Partition& partition, absl::FunctionRef<void(const void* data, size_t size)> sink);

// A snapshot in memory, of the moment at which it was made.
struct HeldSnapshot {
  uint64_t log_index = 0;
  ByteView bytes;
  std::vector<std::shared_ptr<const void>> owners;  // of the bytes
};
// Copies only sparse rows; dense blocks are lent (SharedBlock), and copied by whoever changes them first. The
// snapshot may be read and destroyed on any thread.
HeldSnapshot HoldSnapshot(const Partition& partition);

// The partition that was saved. The bytes may come from anybody: all lengths and counts are checked before anything
// is allocated for them, and what is accepted is saved as the same bytes again.
// DATA_LOSS: no partition's snapshot, telling the byte and what is wrong. INVALID_ARGUMENT: one
// of another partition, of another job or of a later format.
absl::StatusOr<Partition> LoadPartition(uint32_t index, const PartitionOptions& options, const ByteView& bytes);

// CRC32C of the snapshot: equal for replicas that have applied the same changes.
uint32_t Fingerprint(const Partition& partition);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PARTITION_SNAPSHOT_H_
