// The past of a partition, read from a running log.
#ifndef PAWL_SERVER_STORAGE_WAL_LOG_HISTORY_H_
#define PAWL_SERVER_STORAGE_WAL_LOG_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/replication/durable_log.h"
#include "server/shard/partition.h"
#include "server/storage/recovery.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/log_reader.h"

namespace pawl {

// A request for entries of a partition, and its result.
struct WantedEntries {
  WantedEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes)
      : partition(partition), last(last), max_bytes(max_bytes), next(first) {}

  const uint32_t partition;
  const uint64_t last;
  const size_t max_bytes;
  // The index after the last of `entries`.
  uint64_t next;
  std::vector<StoredEntry> entries;
  size_t bytes = 0;
  // The next entry does not fit or is missing, or there is an error.
  bool ended = false;
  absl::Status status;

  void Fail(absl::Status error) {
    status = std::move(error);
    ended = true;
  }
};

// Reads the settled part of a log, as WriteAheadLog::Segments returns it. Segments may be deleted
// meanwhile, but no reset of a partition that is read may be queued.
class LogHistory {
 public:
  // `snapshots` outlives this.
  LogHistory(SnapshotStore& snapshots, std::string log_folder, std::vector<SegmentUse> segments)
      : snapshots_(snapshots), log_folder_(std::move(log_folder)), segments_(std::move(segments)) {}

  // Serves all requests in one pass that reads each needed segment once. Holds one segment in
  // memory at a time, in `segment`, and leaves the last one there for the next pass. The entries
  // are copies.
  void ReadEntries(absl::Span<WantedEntries> wanted, std::optional<LogSegment>& segment) const;

  // The partition as it was after record `index`. NOT_FOUND: snapshots and segments do not reach
  // back that far. CANCELLED: `should_continue`, called before each block of a snapshot and before
  // each segment, has returned false.
  absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition, uint64_t index,
                                                      const PartitionOptions& options,
                                                      std::function<bool()> should_continue) const;

 private:
  SnapshotStore& snapshots_;
  const std::string log_folder_;
  const std::vector<SegmentUse> segments_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_HISTORY_H_
