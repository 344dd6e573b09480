// Serializes a partition's whole state for new replicas, checkpoints, restarts and comparison.
// partition_snapshot_format.md specifies the bytes.
#ifndef PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_SNAPSHOT_H_
#define PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "server/shard/partition.h"

namespace pawl {

// Limit on the size of a table spec in a snapshot. Specs that TableSchema accepts are far smaller.
inline constexpr uint32_t kMaxTableSpecBytes = 64 << 10;
// Limit on the body of a section. A dense block with all of its slots fits.
inline constexpr uint32_t kMaxSnapshotSectionBytes = 4 << 20;

// A partition at one moment, which later changes of the partition do not affect. It costs
// references to the slabs and blocks, and a copy of those that change before they are read.
//
// One thread reads it once from front to back, and reading releases its memory. Any thread may
// destroy it.
class HeldSnapshot {
 public:
  HeldSnapshot();
  HeldSnapshot(HeldSnapshot&&) noexcept;
  HeldSnapshot& operator=(HeldSnapshot&&) noexcept;
  ~HeldSnapshot();

  // The index of the last change in it.
  uint64_t log_index() const { return log_index_; }
  // The approximate size in bytes, for timeouts and budgets.
  uint64_t approximate_bytes() const { return approximate_bytes_; }

  bool at_end() const;
  // Appends whole sections to `out` until they have at least `bytes`, or the snapshot ends.
  // REQUIRES: !at_end().
  void Read(size_t bytes, std::string& out);

  // A hash that is equal for replicas that have applied the same changes; it does not depend on the
  // order of the rows. REQUIRES: nothing has been read.
  uint64_t Fingerprint() const;

 private:
  friend class PartitionSaver;
  friend HeldSnapshot HoldSnapshot(const Partition& partition);
  struct State;

  uint64_t log_index_ = 0;
  uint64_t approximate_bytes_ = 0;
  std::unique_ptr<State> state_;
};

HeldSnapshot HoldSnapshot(const Partition& partition);

// Passes the snapshot to `sink` piece by piece; a piece is valid until the sink returns.
void SavePartition(const Partition& partition,
                   absl::FunctionRef<void(const void* data, size_t size)> sink);

// Loads a saved partition; see PartitionLoader (partition_loader.h).
absl::StatusOr<Partition> LoadPartition(uint32_t index, const PartitionOptions& options,
                                        const ByteView& bytes);

// See HeldSnapshot::Fingerprint.
uint64_t Fingerprint(const Partition& partition);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_SNAPSHOT_H_
