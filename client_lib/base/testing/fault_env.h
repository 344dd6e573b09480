// A file system in memory that fails like real ones: power loss, full disk, damaged disk, failed
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

// Everything that happens is a function of the seed and of the order of calls.
//
// What a loss of power leaves:
//   - of each file what was synced, and of the rest a random part: a prefix torn at any byte, or
//   pieces of 512
//     bytes that were written in any order with zeros between them, or a zero-filled tail;
//   - of each folder what was synced, and a random prefix of the creations, renamings and deletions
//   since.
// A sync that fails leaves the unsynced bytes readable, but they are never durable any more,
// whatever later syncs of the file say: so do Linux file systems.
//
// Thread-safe.
class FaultEnv final : public Env {
 public:
  explicit FaultEnv(uint64_t seed) : random_(seed) {}

  // --- Faults.

  // From now on everything fails with UNAVAILABLE, until RestorePower.
  void CutPower();
  // The same after `operations` more writes, syncs, renamings, creations and deletions; the last
  // one may take effect in part.
  void CutPowerAfter(int64_t operations);
  // The machine is back, with what the loss has left. Files opened before stay dead; locks are
  // free.
  void RestorePower();
  // As if all processes had been killed: files opened before stay dead, nothing is lost.
  void KillProcesses();

  // Files may have so many bytes together; beyond, appends write what fits and fail with
  // RESOURCE_EXHAUSTED, and files cannot be created.
  void SetCapacity(uint64_t bytes);
  void SetUnlimited() { SetCapacity(std::numeric_limits<uint64_t>::max()); }
  uint64_t UsedBytes() const;

  // The next `count` appends (or syncs of files, or syncs of folders, or deletions) fail with
  // DATA_LOSS. A failing append writes a part.
  void FailAppends(int count);
  void FailSyncs(int count);
  void FailFolderSyncs(int count);
  void FailDeletions(int count);

  // From now on syncs of files do not return, as on a disk that has stopped answering, until
  // LetSyncsGo.
  void HoldSyncs();
  void LetSyncsGo();

  // --- What tests look at and damage.

  std::string Contents(const std::string& path) const;
  // As if it had always been so: durable.
  void SetContents(const std::string& path, const std::string& contents);
  uint64_t syncs() const;

  // --- Env. Folders are made with MakeFolder, apart from "/", which is there.
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
  absl::StatusOr<std::unique_ptr<FolderLock>> LockFolder(const std::string& folder) override;

 private:
  class Writer;
  class Reader;
  class Lock;

  struct File {
    std::string contents;
    // What a loss of power leaves for sure.
    std::string durable;
    // How far `durable` still agrees with `contents`, at least: less than all of it after a cut
    // since the last sync.
    uint64_t agrees = 0;
    bool sync_failed = false;
  };
  // A folder is an entry without a file.
  struct Entry {
    std::shared_ptr<File> file;
  };
  using Names = absl::btree_map<std::string, Entry>;

  // Entries that one unsynced operation sets or erases in its folder. A renaming is one operation.
  struct NameChange {
    std::string folder;
    std::vector<std::string> erased;
    Names set;
  };

  // Counts one operation that changes something; UNAVAILABLE without power. `last` tells that the
  // power goes with this operation: it may take effect in part and then fails.
  absl::Status Begin(bool& last) PAWL_REQUIRES(mu_);
  absl::Status CheckPower() const PAWL_REQUIRES(mu_);
  absl::StatusOr<std::shared_ptr<File>> Find(const std::string& path) const PAWL_REQUIRES(mu_);
  // Whether this call is one of the next `count` that are to fail.
  static bool TakeFailure(int& count);
  absl::Status CheckFolder(const std::string& path) const PAWL_REQUIRES(mu_);
  void Change(NameChange change) PAWL_REQUIRES(mu_);
  static void ApplyTo(Names& names, const NameChange& change);
  void LoseUnsynced(File& file) PAWL_REQUIRES(mu_);
  uint64_t Used() const PAWL_REQUIRES(mu_);
  uint64_t Random(uint64_t below) PAWL_REQUIRES(mu_);
  mutable Mutex mu_;
  std::mt19937_64 random_ PAWL_GUARDED_BY(mu_);
  Names names_ PAWL_GUARDED_BY(mu_);
  Names durable_names_ PAWL_GUARDED_BY(mu_);
  std::vector<NameChange> unsynced_changes_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> locked_ PAWL_GUARDED_BY(mu_);
  // One incarnation of the machine's processes: what was opened in an earlier one is dead.
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
