// Builds a partition from its snapshot as the bytes arrive.
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

// Accepts the bytes of a snapshot (partition_snapshot_format.md) in pieces of any size and buffers
// at most one section, so that the partition and its snapshot are not in memory together. A
// snapshot of format 1 is buffered whole.
//
// The bytes are untrusted: lengths and counts are checked before anything is allocated for them.
// The loaded partition has the saved one's Fingerprint.
//
// DATA_LOSS: not a valid snapshot; the message names the byte and the problem. INVALID_ARGUMENT: a
// snapshot of another partition or job, or with content of a later version. After an error all
// further calls return it.
//
// Not thread-safe.
class PartitionLoader {
 public:
  PartitionLoader(uint32_t index, const PartitionOptions& options);
  PartitionLoader(PartitionLoader&&) noexcept;
  ~PartitionLoader();

  absl::Status Append(absl::string_view bytes);
  // Returns the partition after all bytes were appended. Call it once.
  absl::StatusOr<Partition> Finish();

 private:
  // Shared by the loaders of the formats.
  class Fields;
  class Format1;
  class Sections;

  absl::Status Take(absl::string_view bytes);
  static absl::StatusOr<Partition> LoadFormat1(uint32_t index, const PartitionOptions& options,
                                               absl::string_view bytes);

  const uint32_t index_;
  const PartitionOptions options_;
  uint32_t format_ = 0;  // 0: unknown yet
  // The start of a section; the whole snapshot in format 1.
  std::string buffer_;
  std::unique_ptr<Sections> sections_;
  absl::Status status_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_LOADER_H_
