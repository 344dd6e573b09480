// Reads and writes snapshots of partitions in block files.
#ifndef PAWL_SERVER_STORAGE_SNAPSHOT_PARTITION_FILE_H_
#define PAWL_SERVER_STORAGE_SNAPSHOT_PARTITION_FILE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_loader.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/block_file.h"

namespace pawl {

// Called before each block; false ends the work with CANCELLED.
using ShouldContinue = absl::FunctionRef<bool()>;

// Reads the file to its end, block by block.
inline absl::StatusOr<Partition> LoadPartitionFile(
    BlockFileReader& file, PartitionLoader loader,
    ShouldContinue should_continue = [] { return true; }) {
  while (true) {
    if (!should_continue()) return absl::CancelledError("reading a partition was interrupted");
    PAWL_ASSIGN_OR_RETURN(const absl::string_view block, file.NextBlock());
    if (block.empty()) return loader.Finish();
    PAWL_RETURN_IF_ERROR(loader.Append(block));
  }
}

// Appends the whole snapshot in pieces to `writer`, which has Append(absl::string_view).
template <typename Writer>
absl::Status WritePartition(HeldSnapshot snapshot, Writer& writer, ShouldContinue should_continue) {
  std::string piece;
  while (!snapshot.at_end()) {
    if (!should_continue()) return absl::CancelledError("writing a partition was interrupted");
    piece.clear();
    snapshot.Read(kBlockBytes, piece);
    PAWL_RETURN_IF_ERROR(writer.Append(piece));
  }
  return absl::OkStatus();
}

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SNAPSHOT_PARTITION_FILE_H_
