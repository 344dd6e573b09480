// Reads a data directory back: the newest snapshots, and the log's records after them.
#ifndef PAWL_SERVER_STORAGE_RECOVERY_H_
#define PAWL_SERVER_STORAGE_RECOVERY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "server/storage/block_file.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/log_format.h"
#include "server/storage/wal/log_writer.h"

namespace pawl {

// Takes what is recovered, in this order: the snapshots, then the records in the order of the log.
// An error ends the recovery and becomes its result.
class RecoverySink {
 public:
  virtual ~RecoverySink() = default;

  // All of the file has been checked. It is to be read to its end.
  virtual absl::Status LoadSnapshot(uint32_t partition, uint64_t index,
                                    BlockFileReader& snapshot) = 0;
  // The indices of a partition come without gaps, from its snapshot's index + 1 on, or from 1 on
  // without a snapshot. `owner` keeps the payload (with the rest of its segment).
  virtual absl::Status Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                              const std::shared_ptr<const void>& owner) = 0;
};

struct RecoveredPartition {
  uint32_t partition = 0;
  // 0: no snapshot.
  uint64_t snapshot_index = 0;
  uint64_t last_index = 0;
};

// A segment of the log, as far as it matters to what can be read from it and when it can be
// deleted.
struct SegmentUse {
  uint64_t segment = 0;
  uint64_t bytes = 0;
  // The last record that it holds of each partition; what it has behind that is void.
  absl::btree_map<uint32_t, uint64_t> last_index;
  // It holds a cut whose snapshots could not be deleted or renamed: not to go before that.
  bool kept = false;

  // A later record cuts the partition's log.
  void Cut(uint32_t partition, const LogCut& cut);
};

// What a WriteAheadLog goes on from.
struct RecoveredLog {
  std::vector<RecoveredPartition> partitions;
  // What the caller should log: a tail that was cut, a snapshot that was passed over, with file and
  // offset.
  std::vector<std::string> notes;

  // In order; empty for a new log.
  std::vector<SegmentUse> segments;
  LogWriter::End end;
  // The records at the end that may never have been acknowledged. They have been replayed, and are
  // written again first thing, because what can be read of them need not be on the disk.
  std::vector<QueuedRecord> unsettled;
  // Up to which index each partition's log is not needed any more.
  absl::btree_map<uint32_t, uint64_t> released;
};

// Reads everything there is in the data directory, gives it to the sink, cuts a torn tail, and
// deletes files that are void. REQUIRES: the directory is locked, snapshots.Open() has succeeded,
// no log is open. A new directory gives an empty result.
//
//   DATA_LOSS            a damaged middle, a segment that is missing, records that are missing
//   between a partition's
//                        snapshot and its log; names the file and the offset. Nothing was changed.
//   FAILED_PRECONDITION  the log is another job's.
absl::StatusOr<RecoveredLog> Recover(const std::string& data_folder, SnapshotStore& snapshots,
                                     RecoverySink& sink);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_RECOVERY_H_
