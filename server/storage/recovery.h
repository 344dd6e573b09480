// Recovers a data directory: the newest snapshots, and the log's records after them.
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

// Receives the recovered data: first the snapshots, then the records in log order. An error ends
// the recovery and becomes its result.
class RecoverySink {
 public:
  virtual ~RecoverySink() = default;

  // The whole file was verified. The sink must read it to its end.
  virtual absl::Status LoadSnapshot(uint32_t partition, uint64_t index,
                                    BlockFileReader& snapshot) = 0;
  // The indices of a partition have no gaps: they start at its snapshot's index + 1, or at 1
  // without a snapshot. `owner` keeps the payload (with the rest of its segment) alive.
  virtual absl::Status Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                              const std::shared_ptr<const void>& owner) = 0;
  // Called before each segment, and each block of a snapshot, is read. False ends the recovery with
  // CANCELLED.
  virtual bool ShouldContinue() { return true; }
};

struct RecoveredPartition {
  uint32_t partition = 0;
  // 0: no snapshot.
  uint64_t snapshot_index = 0;
  uint64_t last_index = 0;
};

// The properties of a log segment that are needed to read it and to decide when to delete it.
struct SegmentUse {
  uint64_t segment = 0;
  uint64_t bytes = 0;
  // The last valid record of each partition in the segment; later ones are void.
  absl::btree_map<uint32_t, uint64_t> last_index;
  // The snapshots of a reset in it could not be deleted or renamed yet: the segment stays until
  // then.
  bool has_pending_resets = false;
  // Some settled bytes may be nowhere but in the system's cache.
  bool sync_failed = false;
  // The file may be gone already.
  bool is_being_deleted = false;

  // A later record resets the partition's log.
  void Reset(uint32_t partition, const LogReset& reset);
};

// The state from which a WriteAheadLog continues.
struct RecoveredLog {
  std::vector<RecoveredPartition> partitions;
  // Messages for the caller to log, with file and offset: a truncated tail, a skipped snapshot.
  std::vector<std::string> notes;

  // In order; empty for a new log.
  std::vector<SegmentUse> segments;
  LogWriter::End end;
  // The records at the end that may never have been acknowledged. They were replayed, and are
  // written again first, because readable data is not necessarily on the disk.
  std::vector<QueuedRecord> unsettled;
  // By partition: the log is no longer needed up to this index.
  absl::btree_map<uint32_t, uint64_t> released;
};

// Reads the data directory, passes its contents to the sink, truncates a torn tail, and deletes
// void files. A new directory gives an empty result. REQUIRES: the directory is locked,
// snapshots.Open() has succeeded, no log is open.
//
// DATA_LOSS, naming the file and the offset: data in the middle is damaged, a segment is missing,
// or records between a partition's snapshot and its log are missing. Nothing was changed.
// FAILED_PRECONDITION: the log is another job's. INVALID_ARGUMENT: a newer program wrote it.
absl::StatusOr<RecoveredLog> Recover(const std::string& data_folder, SnapshotStore& snapshots,
                                     RecoverySink& sink);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_RECOVERY_H_
