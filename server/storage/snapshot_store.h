// The snapshots of a server's partitions: what the log need not hold any more.
#ifndef PAWL_SERVER_STORAGE_SNAPSHOT_STORE_H_
#define PAWL_SERVER_STORAGE_SNAPSHOT_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "server/storage/block_file.h"
#include "server/storage/log_format.h"

namespace pawl {

// The snapshots' folder within the data directory.
inline constexpr char kSnapshotFolder[] = "snapshots";
// Snapshots of a partition that are kept: the second one is there in case the newest is found damaged.
inline constexpr size_t kSnapshotsKept = 2;

class SnapshotStore;

// A snapshot while it is written. Not thread-safe. Leaves nothing behind unless Commit succeeds.
class SnapshotWriter {
 public:
  ~SnapshotWriter();

  absl::Status Append(absl::string_view bytes) { return file_->Append(bytes); }
  // Makes it durable and the partition's newest; deletes the ones too many. Returns the index up to which the
  // partition's log is not needed any more, for WriteAheadLog::Release: that of the oldest snapshot kept; 0 while
  // there is one alone. ABORTED if the partition was dropped since Begin. UNKNOWN: it may be there, or come back after a
  // loss of power; a drop makes sure that it does not count.
  absl::StatusOr<uint64_t> Commit();

 private:
  friend class SnapshotStore;
  SnapshotWriter(SnapshotStore& store, std::string temporary, std::unique_ptr<BlockFileWriter> file, const BlockFileId& id)
      : store_(store), temporary_(std::move(temporary)), file_(std::move(file)), id_(id) {}

  SnapshotStore& store_;
  const std::string temporary_;
  const std::unique_ptr<BlockFileWriter> file_;
  const BlockFileId id_;
  bool committed_ = false;
};

// Files <data dir>/snapshots/p<partition>-<index>.snap, each durable before it has this name. Thread-safe.
class SnapshotStore {
 public:
  struct Snapshot {
    uint32_t partition = 0;
    uint64_t index = 0;
    std::string path;
  };

  SnapshotStore(Env& env, absl::string_view data_folder, uint64_t job_id);

  Env& env() const { return env_; }
  uint64_t job_id() const { return job_id_; }

  // Makes the folder and reads which snapshots there are; deletes what was not finished. Before all others.
  absl::Status Open();
  // The files, oldest first for each partition. Only their names were looked at.
  std::vector<Snapshot> List() const;

  // Begins a snapshot of the state at `index`. `position` is WriteAheadLog::DurablePosition at any time after a drop
  // of the partition was reported durable and before now.
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> Begin(uint32_t partition, uint64_t index, LogPosition position);
  absl::StatusOr<std::unique_ptr<BlockFileReader>> OpenToRead(const Snapshot& snapshot) const;

  // The partition was dropped at `position`: deletes its snapshots that were begun before, durably. One that is being
  // written cannot be committed any more.
  absl::Status Drop(uint32_t partition, LogPosition position);
  // What drops have failed to delete.
  absl::Status RepeatDrops();
  // Deletes one file, durably.
  absl::Status Delete(const Snapshot& snapshot);
  // Reads all of the file. DATA_LOSS names it and the offset; NOT_FOUND.
  absl::Status Verify(const Snapshot& snapshot) const;
  // OK: the file is whole, or is not there (any more).
  absl::Status DeleteIfDamaged(const Snapshot& snapshot);

 private:
  friend class SnapshotWriter;
  BlockFileId IdOf(const Snapshot& snapshot) const;
  std::string PathOf(uint32_t partition, uint64_t index) const;
  absl::StatusOr<uint64_t> Commit(const SnapshotWriter& writer) PAWL_EXCLUDES(mu_);
  absl::Status DeleteDropped(uint32_t partition, uint64_t packed_position) PAWL_REQUIRES(mu_);
  absl::Status SyncNames() PAWL_REQUIRES(mu_);

  Env& env_;
  const std::string folder_;
  const uint64_t job_id_;

  mutable Mutex mu_;
  // By partition and index; the value is the packed position at which it was begun, if known.
  absl::btree_map<std::pair<uint32_t, uint64_t>, std::optional<uint64_t>> snapshots_ PAWL_GUARDED_BY(mu_);
  absl::btree_map<uint32_t, uint64_t> dropped_ PAWL_GUARDED_BY(mu_);
  uint64_t temporaries_ PAWL_GUARDED_BY(mu_) = 0;
  // Names have changed since the last sync that succeeded, and one has failed.
  bool unsynced_ PAWL_GUARDED_BY(mu_) = false;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SNAPSHOT_STORE_H_
