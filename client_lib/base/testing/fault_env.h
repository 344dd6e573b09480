// A file system in memory with the faults of real ones: power loss, full disk, damaged disk, failed
// sync.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_FAULT_ENV_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_FAULT_ENV_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// The behaviour is a function of the seed and of the order of calls.
//
// After power loss:
// - a file keeps what was synced, and a random part of the rest: a prefix torn at any byte, or
//   512-byte pieces written in any order with zeros between them, or a tail of zeros;
// - a folder keeps what was synced, and a random prefix of the creations, renames and deletions
//   since.
//
// A failed sync leaves the unsynced bytes readable, but they never become durable, whatever later
// syncs of the file report. Linux file systems behave like that.
//
// Thread-safe.
class FaultEnv final : public Env {
 public:
  explicit FaultEnv(uint64_t seed) : random_(seed) {}

  // --- Faults.

  // Every operation fails with UNAVAILABLE until RestorePower.
  void CutPower();
  // Cuts the power after `operations` more writes, syncs, renames, creations and deletions; the
  // last one may take effect in part.
  void CutPowerAfter(int64_t operations);
  // Restarts the machine with what the power loss has left. Files opened before remain unusable;
  // locks are free.
  void RestorePower();
  // Simulates the death of all processes: files opened before become unusable, no data is lost.
  void KillProcesses();

  // Limits the total size of all files. Beyond it, appends write what fits and fail with
  // RESOURCE_EXHAUSTED, and files cannot be created.
  void SetCapacity(uint64_t bytes);
  void SetUnlimited() { SetCapacity(std::numeric_limits<uint64_t>::max()); }
  uint64_t UsedBytes() const;

  // The next `count` appends (or file syncs, folder syncs, deletions) fail with DATA_LOSS. A
  // failing append writes a part.
  void FailAppends(int count);
  void FailSyncs(int count);
  void FailFolderSyncs(int count);
  void FailDeletions(int count);

  // File syncs block until ReleaseSyncs, as on a disk that has stopped answering.
  void HoldSyncs();
  void ReleaseSyncs();

  // --- Inspection and damage.

  std::string Contents(const std::string& path) const;
  // Sets the durable content of the file.
  void SetContents(const std::string& path, const std::string& contents);
  uint64_t syncs() const;
  // Flips a bit of the byte at `offset` on the disk. Reads show it once DropCached was called.
  // False: no synced byte is there.
  bool Rot(const std::string& path, uint64_t offset);

  // --- Env. Only "/" exists at first; MakeFolder makes further folders.
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Delete(const std::string& path) override;
  absl::Status MakeFolder(const std::string& path) override;
  absl::Status DeleteFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override;
  absl::Status SyncFolder(const std::string& folder) override;
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override;
  void DropCached(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FolderLock>> LockFolder(const std::string& folder) override;

 private:
  class Writer;
  class Reader;
  class Lock;

  struct File {
    std::string contents;
    // The bytes that certainly survive power loss.
    std::string durable;
    // A lower bound of the length to which `durable` agrees with `contents`: below durable.size()
    // after a truncation since the last sync.
    uint64_t agrees = 0;
    bool sync_failed = false;
  };
  // A folder is an entry without a file.
  struct Entry {
    std::shared_ptr<File> file;
  };
  using Names = absl::btree_map<std::string, Entry>;

  // The entries that one unsynced operation sets or erases in its folder. A rename is one
  // operation.
  struct NameChange {
    std::string folder;
    std::vector<std::string> erased;
    Names set;
  };

  // Counts an operation that changes something. UNAVAILABLE without power. Sets `last` if the power
  // fails during this operation, which may then take effect in part and fails.
  absl::Status Begin(bool& last) PAWL_REQUIRES(mu_);
  absl::Status CheckPower() const PAWL_REQUIRES(mu_);
  absl::StatusOr<std::shared_ptr<File>> Find(const std::string& path) const PAWL_REQUIRES(mu_);
  // Whether this call is one of the next `count`, which must fail.
  static bool TakeFailure(int& count);
  absl::Status CheckFolder(const std::string& path) const PAWL_REQUIRES(mu_);
  void Change(NameChange change) PAWL_REQUIRES(mu_);
  static void ApplyTo(Names& names, const NameChange& change);
  void LoseUnsynced(File& file) PAWL_REQUIRES(mu_);
  // Replaces what the system would read from the disk after its cache was dropped.
  static void ReadFromDisk(File& file);
  uint64_t Used() const PAWL_REQUIRES(mu_);
  uint64_t Random(uint64_t below) PAWL_REQUIRES(mu_);
  mutable Mutex mu_;
  std::mt19937_64 random_ PAWL_GUARDED_BY(mu_);
  Names names_ PAWL_GUARDED_BY(mu_);
  Names durable_names_ PAWL_GUARDED_BY(mu_);
  std::vector<NameChange> unsynced_changes_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> locked_ PAWL_GUARDED_BY(mu_);
  // The incarnation of the machine's processes. Files opened in an earlier one are unusable.
  uint64_t incarnation_ PAWL_GUARDED_BY(mu_) = 0;
  bool powered_ PAWL_GUARDED_BY(mu_) = true;
  int64_t operations_left_ PAWL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::max();
  uint64_t capacity_ PAWL_GUARDED_BY(mu_) = std::numeric_limits<uint64_t>::max();
  int failing_appends_ PAWL_GUARDED_BY(mu_) = 0;
  int failing_syncs_ PAWL_GUARDED_BY(mu_) = 0;
  int failing_folder_syncs_ PAWL_GUARDED_BY(mu_) = 0;
  int failing_deletions_ PAWL_GUARDED_BY(mu_) = 0;
  bool holds_syncs_ PAWL_GUARDED_BY(mu_) = false;
  CondVar syncs_go_;
  uint64_t syncs_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_FAULT_ENV_H_
