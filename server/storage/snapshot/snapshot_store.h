// The snapshots of a server's partitions: what the log need not hold any more.
#ifndef PAWL_SERVER_STORAGE_SNAPSHOT_SNAPSHOT_STORE_H_
#define PAWL_SERVER_STORAGE_SNAPSHOT_SNAPSHOT_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "server/storage/block_file.h"
#include "server/storage/wal/log_format.h"

namespace pawl {

// The snapshots' folder within the data directory.
inline constexpr char kSnapshotFolder[] = "snapshots";
// Snapshots of a partition that are kept: the second one is there in case the newest is found
// damaged.
inline constexpr size_t kSnapshotsKept = 2;

class SnapshotStore;

// A snapshot while it is written. Not thread-safe. Leaves nothing behind unless Commit succeeds or
// Keep is called.
class SnapshotWriter {
 public:
  ~SnapshotWriter();

  absl::Status Append(absl::string_view bytes) { return file_->Append(bytes); }
  // Makes it durable and the partition's newest; deletes the ones too many. Returns the index up to
  // which the partition's log is not needed any more, for WriteAheadLog::Release: that of the
  // oldest snapshot kept; 0 while there is one alone. ABORTED if the partition's log was cut since
  // Begin. UNKNOWN: it may be there, or come back after a loss of power. REQUIRES:
  // SnapshotStore::Begin.
  absl::StatusOr<uint64_t> Commit();

  // Makes it durable under a name that recovery deletes, unless the log has a cut with this mark.
  // REQUIRES: SnapshotStore::BeginStored.
  absl::Status Store();
  uint64_t mark() const { return id_.mark; }
  // Call it when the cut is queued. The destructor then keeps the file.
  void Keep() { kept_ = true; }

 private:
  friend class SnapshotStore;
  SnapshotWriter(SnapshotStore& store, std::string temporary, std::unique_ptr<BlockFileWriter> file,
                 const BlockFileId& id)
      : store_(store), temporary_(std::move(temporary)), file_(std::move(file)), id_(id) {}

  SnapshotStore& store_;
  const std::string temporary_;
  const std::unique_ptr<BlockFileWriter> file_;
  const BlockFileId id_;
  bool kept_ = false;
};

// Files <data dir>/snapshots/p<partition>-<index>.snap, each durable before it has this name. One
// that is to replace a partition's log has the ending .<mark>.stored until the log has the cut.
// Thread-safe.
class SnapshotStore {
 public:
  struct Snapshot {
    uint32_t partition = 0;
    uint64_t index = 0;
    std::string path;
    // Of a file with the ending .stored.
    std::optional<uint64_t> stored_mark = std::nullopt;
  };

  SnapshotStore(Env& env, absl::string_view data_folder, uint64_t job_id);

  Env& env() const { return env_; }
  uint64_t job_id() const { return job_id_; }

  // Makes the folder and reads which snapshots there are; deletes what was not finished. Before all
  // others.
  absl::Status Open();
  // The snapshots that count, oldest first for each partition. Only their names were looked at.
  std::vector<Snapshot> List() const;
  // For recovery: also the stored ones that Open has found, each after one of the same index.
  std::vector<Snapshot> ListAll() const;
  // REQUIRES: List has it.
  Snapshot Of(uint32_t partition, uint64_t index) const;

  // Begins a snapshot of the state at `index`. `position` is WriteAheadLog::DurablePosition at any
  // time after a cut of the partition was reported durable and before now.
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> Begin(uint32_t partition, uint64_t index,
                                                        LogPosition position);
  // Begins a snapshot that Replace may put in place of the log. UNAVAILABLE while one of that index
  // and position is pending.
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> BeginStored(uint32_t partition, uint64_t index,
                                                              LogPosition position);
  absl::StatusOr<std::unique_ptr<BlockFileReader>> OpenToRead(const Snapshot& snapshot) const;

  // The partition's log was cut at `position`: its snapshots that this voids are not listed any
  // more, the one that replaces its log is, and one that is being written cannot be committed. The
  // files stay as they are until ApplyCuts.
  void Cut(uint32_t partition, const LogCut& cut, LogPosition position);
  // Deletes and renames, durably, what the cuts so far require. After an error the next call does
  // the rest.
  absl::Status ApplyCuts();
  // For recovery: a stored snapshot replaces its partition's log.
  absl::Status Adopt(const Snapshot& stored);
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
  std::string StoredPathOf(uint32_t partition, uint64_t index, uint64_t mark) const;
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> Begin(const BlockFileId& id,
                                                        std::string temporary);
  absl::StatusOr<uint64_t> Commit(const SnapshotWriter& writer) PAWL_EXCLUDES(mu_);
  absl::Status Store(const SnapshotWriter& writer) PAWL_EXCLUDES(mu_);
  void Forget(const SnapshotWriter& writer) PAWL_EXCLUDES(mu_);
  absl::Status FinishCuts() PAWL_REQUIRES(mu_);
  absl::Status SyncNames() PAWL_REQUIRES(mu_);

  Env& env_;
  const std::string folder_;
  const uint64_t job_id_;

  mutable Mutex mu_;
  struct File {
    // The packed position at which it was begun, if known.
    std::optional<uint64_t> mark;
    // PathOf, unless it has not been renamed yet.
    std::string path;
  };
  // By partition and index.
  absl::btree_map<std::pair<uint32_t, uint64_t>, File> snapshots_ PAWL_GUARDED_BY(mu_);
  // What Open has found under names of stored ones.
  std::vector<Snapshot> found_stored_ PAWL_GUARDED_BY(mu_);
  // Names of stored snapshots whose writer lives, or whose cut is not durable yet.
  absl::flat_hash_set<std::string> storing_ PAWL_GUARDED_BY(mu_);
  // Files that cuts have made void and that are not deleted yet.
  absl::btree_set<std::string> void_ PAWL_GUARDED_BY(mu_);
  // By partition: where its last cut is, packed.
  absl::btree_map<uint32_t, uint64_t> cut_ PAWL_GUARDED_BY(mu_);
  uint64_t temporaries_ PAWL_GUARDED_BY(mu_) = 0;
  // Names have changed since the last sync that succeeded.
  bool unsynced_ PAWL_GUARDED_BY(mu_) = false;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SNAPSHOT_SNAPSHOT_STORE_H_
