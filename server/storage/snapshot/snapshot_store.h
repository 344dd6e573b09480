// The snapshots of a server's partitions, which replace the older part of the log.
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
#include "absl/functional/function_ref.h"
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
// How many snapshots of a partition are kept. The second one serves when the newest is damaged.
inline constexpr size_t kSnapshotsKept = 2;

class SnapshotStore;

// Writes a snapshot. Not thread-safe. Leaves nothing behind unless Commit succeeds or Keep is
// called.
class SnapshotWriter {
 public:
  ~SnapshotWriter();

  absl::Status Append(absl::string_view bytes) { return file_->Append(bytes); }
  // Makes the snapshot durable and the partition's newest; deletes surplus ones. Returns the index
  // up to which the partition's log is no longer needed, for WriteAheadLog::Release: the index of
  // the oldest snapshot kept, or 0 while there is only one. ABORTED: the partition's log was reset
  // since Begin. UNKNOWN: the snapshot may exist, or reappear after a power loss. REQUIRES:
  // SnapshotStore::Begin.
  absl::StatusOr<uint64_t> Commit();

  // Makes the snapshot durable under a name that recovery deletes unless the log has a reset with
  // this mark. REQUIRES: SnapshotStore::BeginStored.
  absl::Status Store();
  uint64_t mark() const { return id_.mark; }
  // Call it when the reset is queued. The destructor then keeps the file.
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

// Manages the files <data dir>/snapshots/p<partition>-<index>.snap, each durable before it gets
// this name. A snapshot that is to replace a partition's log has the suffix .<mark>.stored until
// the log has the reset. Thread-safe.
class SnapshotStore {
 public:
  struct Snapshot {
    uint32_t partition = 0;
    uint64_t index = 0;
    std::string path;
    // Set for files with the suffix .stored.
    std::optional<uint64_t> stored_mark = std::nullopt;
  };

  SnapshotStore(Env& env, absl::string_view data_folder, uint64_t job_id);

  Env& env() const { return env_; }
  uint64_t job_id() const { return job_id_; }

  // Creates the folder, lists the snapshots, and deletes unfinished ones. Call it first.
  absl::Status Open();
  // The valid snapshots, by partition, oldest first. Only their names were checked.
  std::vector<Snapshot> List() const;
  // For recovery: also the stored snapshots that Open found, each after any other one of the same
  // index.
  std::vector<Snapshot> ListAll() const;
  // REQUIRES: List has it.
  Snapshot Of(uint32_t partition, uint64_t index) const;

  // Starts a snapshot of the state at `index`. `position` is WriteAheadLog::DurablePosition at any
  // time since the partition's last reset was reported durable.
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> Begin(uint32_t partition, uint64_t index,
                                                        LogPosition position);
  // Starts a snapshot that may replace the log. UNAVAILABLE while one with that index and position
  // is pending.
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> BeginStored(uint32_t partition, uint64_t index,
                                                              LogPosition position);
  absl::StatusOr<std::unique_ptr<BlockFileReader>> OpenToRead(const Snapshot& snapshot) const;

  // The partition's log was reset at `position`. The snapshots that this voids are no longer
  // listed, the one that replaces the log is, and a snapshot that is being written cannot be
  // committed. The files do not change until ApplyResets.
  void Reset(uint32_t partition, const LogReset& reset, LogPosition position);
  // Durably deletes and renames files as the resets so far require. After an error the next call
  // does the rest.
  absl::Status ApplyResets();
  // For recovery: a stored snapshot replaces its partition's log.
  absl::Status Adopt(const Snapshot& stored);
  // Durably deletes one file.
  absl::Status Delete(const Snapshot& snapshot);
  // Reads the whole file. DATA_LOSS names the file and the offset; NOT_FOUND; CANCELLED:
  // `should_continue`, called before each block, has returned false.
  absl::Status Verify(
      const Snapshot& snapshot,
      absl::FunctionRef<bool()> should_continue = [] { return true; }) const;
  // OK: the file is whole, or does not exist.
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
  absl::Status FinishResets() PAWL_REQUIRES(mu_);
  absl::Status SyncNames() PAWL_REQUIRES(mu_);

  Env& env_;
  const std::string folder_;
  const uint64_t job_id_;

  mutable Mutex mu_;
  struct File {
    // The packed position at which it was started, if known.
    std::optional<uint64_t> mark;
    // PathOf, unless it has not been renamed yet.
    std::string path;
  };
  // By partition and index.
  absl::btree_map<std::pair<uint32_t, uint64_t>, File> snapshots_ PAWL_GUARDED_BY(mu_);
  // The stored snapshots that Open found.
  std::vector<Snapshot> found_stored_ PAWL_GUARDED_BY(mu_);
  // Names of stored snapshots that have a writer, or whose reset is not durable yet.
  absl::flat_hash_set<std::string> storing_ PAWL_GUARDED_BY(mu_);
  // Files that resets have voided and that are not deleted yet.
  absl::btree_set<std::string> void_ PAWL_GUARDED_BY(mu_);
  // By partition: the packed position of its last reset.
  absl::btree_map<uint32_t, uint64_t> last_reset_ PAWL_GUARDED_BY(mu_);
  uint64_t temporaries_ PAWL_GUARDED_BY(mu_) = 0;
  // Names have changed since the last successful sync.
  bool unsynced_ PAWL_GUARDED_BY(mu_) = false;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SNAPSHOT_SNAPSHOT_STORE_H_
