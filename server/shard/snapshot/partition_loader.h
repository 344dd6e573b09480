// Builds a partition from its snapshot while the bytes arrive.
#ifndef PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_LOADER_H_
#define PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/shard/partition.h"

namespace pawl {

// Takes the bytes of a snapshot (partition_snapshot_format.md) in pieces of any size and keeps of
// them at most a section: so a partition and its snapshot are not in memory at the same time. A
// snapshot of format 1 is kept until its end.
//
// The bytes may come from anywhere: lengths and counts are checked before anything is allocated for
// them, and a partition with the same Fingerprint is saved and loaded again.
//
// DATA_LOSS: no partition's snapshot, telling the byte and what is wrong. INVALID_ARGUMENT: a
// snapshot of another partition or another job, or with something of a later version. After an
// error all further calls return it.
//
// Not thread-safe.
class PartitionLoader {
 public:
  PartitionLoader(uint32_t index, const PartitionOptions& options);
  PartitionLoader(PartitionLoader&&) noexcept;
  ~PartitionLoader();

  absl::Status Append(absl::string_view bytes);
  // The partition, once all bytes were appended. To be called once.
  absl::StatusOr<Partition> Finish();

 private:
  class Sections;

  absl::Status Take(absl::string_view bytes);

  const uint32_t index_;
  const PartitionOptions options_;
  uint32_t format_ = 0;  // 0: not known yet
  // The beginning of a section; of format 1, all.
  std::string buffer_;
  std::unique_ptr<Sections> sections_;
  absl::Status status_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_LOADER_H_
