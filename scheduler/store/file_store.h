// The scheduler's state in a directory of its own machine.
#ifndef PAWL_SCHEDULER_STORE_FILE_STORE_H_
#define PAWL_SCHEDULER_STORE_FILE_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
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
  // Made, with its parents, if it is missing. On a local file system: the lock is flock's.
  std::string folder;
  // A log that would grow beyond this is replaced by its newest state. Larger makes rewriting rarer
  // and Load longer.
  uint64_t max_log_bytes = uint64_t{8} << 20;
};

// `state.log` of state_log_format.md, written by the process that holds the folder's lock.
//
// 1. Who cannot lock the folder is no leader; the kernel gives the lock back when its process dies.
// 2. Before each write the log must have the length that this process has left it with. So one
// whose lock
//    was broken by removing the lock file is refused as soon as another has written.
// 3. No failed write is built upon: the next Save writes the log anew.
class FileStore final : public StateStore {
 public:
  // `env` outlives the store.
  explicit FileStore(FileStoreOptions options, Env& env = Env::Real());
  ~FileStore() override = default;

  absl::Status Campaign(MonotonicTime deadline) override;
  bool IsLeader() const override { return leader_; }
  void WhenLeadershipLost(std::function<void(const absl::Status& why)> lost) override;
  absl::StatusOr<std::optional<StoredState>> Load() override;
  absl::StatusOr<std::optional<StoredState>> Peek() override;
  absl::Status Save(uint64_t revision, absl::string_view state) override;
  std::string Describe() const override;

  std::string log_path() const { return JoinPath(options_.folder, "state.log"); }

 private:
  // What is stored, as far as this process knows; revision 0 is nothing.
  struct Newest {
    uint64_t revision = 0;
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };

  absl::Status CheckLeader() const;
  // NOT_FOUND; DATA_LOSS. `*bytes` gets the log's length.
  absl::StatusOr<StateLog> ReadLog(uint64_t* bytes) const;
  absl::Status CheckLogIsOurs();
  absl::Status Append(absl::string_view record);
  absl::Status Rewrite(absl::string_view record);

  const FileStoreOptions options_;
  Env& env_;
  std::function<void(const absl::Status&)> lost_;
  std::atomic<bool> leader_{false};

  // For the thread that calls Campaign, Load and Save.
  std::unique_ptr<FolderLock> lock_;
  bool loaded_ = false;
  Newest newest_;
  // Its length on disk; none if it is unknown since a write failed.
  std::optional<uint64_t> log_bytes_;
  // Open if the next record may be appended.
  std::unique_ptr<WritableFile> log_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_FILE_STORE_H_
