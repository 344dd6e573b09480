// Reads what lies on the disk again, to find bits that have rotted while there is still a good copy
// in memory.
#ifndef PAWL_SERVER_STORAGE_SCRUBBER_H_
#define PAWL_SERVER_STORAGE_SCRUBBER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client_lib/base/mutex.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/write_ahead_log.h"

namespace pawl {

struct ScrubberOptions {
  std::string log_folder;
  // How fast files are read, on average. A file is read at once, and then paid for.
  uint64_t bytes_per_s = uint64_t{8} << 20;
  // Between the end of one pass over all files and the next one.
  std::chrono::milliseconds pause{1000};
};

// Reads the snapshots and the durable part of the log, over and over, on a thread of its own. A
// file that is found damaged is read once more before it is told; one that was deleted meanwhile is
// none. The same file is told again by each pass until it is good or gone.
class Scrubber {
 public:
  struct Events {
    // Called by the scrubber's thread, without locks. Must not block. The error names the file and
    // the offset.
    std::function<void(const SnapshotStore::Snapshot& snapshot, const absl::Status& damage)>
        snapshot_damaged;
    std::function<void(uint64_t segment, const absl::Status& damage)> segment_damaged;
  };

  // All outlive it.
  Scrubber(SnapshotStore& snapshots, const WriteAheadLog& log, ScrubberOptions options,
           Events events);
  // Returns when the file that is being read has been read.
  ~Scrubber();

 private:
  void Run();
  // Runs `check`, twice if it fails, and pays for `bytes`. OK unless the file is damaged.
  absl::Status Check(uint64_t bytes, const std::function<absl::Status()>& check);
  // False: it is over.
  bool Sleep(std::chrono::nanoseconds duration);

  SnapshotStore& snapshots_;
  const WriteAheadLog& log_;
  const ScrubberOptions options_;
  const Events events_;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SCRUBBER_H_
