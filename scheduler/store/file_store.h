// The scheduler's state in a folder of its own machine.
#ifndef PAWL_SCHEDULER_STORE_FILE_STORE_H_
#define PAWL_SCHEDULER_STORE_FILE_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "scheduler/store/state_log.h"
#include "scheduler/store/state_store.h"

namespace pawl {

struct FileStoreOptions {
  // Created with its parents if it is missing. Must be on a local file system: flock locks it.
  std::string folder;
  // A log that would exceed this is replaced by its newest state. A larger limit makes rewrites
  // rarer and Load slower.
  uint64_t max_log_bytes = uint64_t{8} << 20;
};

// The process that holds the folder's lock is the leader and writes `state.log`
// (state_log_format.md).
//
// 1. Only the owner of the lock leads. The kernel releases the lock when its process dies.
// 2. Before each write the log must have the length that this process left. So a process whose lock
//    file was removed is refused as soon as another process has written.
// 3. Nothing is appended after a failed write: the next Save rewrites the log.
class FileStore final : public StateStore {
 public:
  // REQUIRES: `env` outlives the store.
  explicit FileStore(FileStoreOptions options, Env& env = Env::Real());
  ~FileStore() override = default;

  absl::Status Campaign(MonotonicTime deadline) override;
  bool IsLeader() const override { return leader_; }
  absl::StatusOr<std::optional<StoredState>> Load() override;
  absl::StatusOr<std::optional<StoredState>> Peek() override;
  absl::Status Save(uint64_t revision, absl::string_view state) override;
  std::string Describe() const override;

  std::string log_path() const { return JoinPath(options_.folder, "state.log"); }

 private:
  // The stored state as this process knows it; revision 0: none.
  struct Newest {
    uint64_t revision = 0;
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };

  absl::Status CheckLeader() const;
  // Reads the log and sets `*bytes` to its length. NOT_FOUND: there is none. DATA_LOSS: it is
  // damaged.
  absl::StatusOr<StateLog> ReadLog(uint64_t* bytes) const;
  absl::Status CheckLogIsOurs();
  absl::Status Append(absl::string_view record);
  absl::Status Rewrite(absl::string_view record);

  const FileStoreOptions options_;
  Env& env_;
  std::atomic<bool> leader_{false};

  // Used by the thread that calls Campaign, Load and Save.
  std::unique_ptr<FolderLock> lock_;
  bool loaded_ = false;
  Newest newest_;
  // The log's length on disk; unset if a failed write made it unknown.
  std::optional<uint64_t> log_bytes_;
  // The open log if the next record may be appended; otherwise null.
  std::unique_ptr<WritableFile> log_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_FILE_STORE_H_
