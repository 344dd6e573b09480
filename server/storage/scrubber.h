// The scrubber rereads the files on disk, to find bit rot while memory still has a good copy.
#ifndef PAWL_SERVER_STORAGE_SCRUBBER_H_
#define PAWL_SERVER_STORAGE_SCRUBBER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client_lib/daemon/background_thread.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/write_ahead_log.h"

namespace pawl {

struct ScrubberOptions {
  std::string log_folder;
  // The average read rate. A file is read at full speed, followed by a pause.
  uint64_t bytes_per_s = uint64_t{8} << 20;
  // The pause between two passes over all files.
  std::chrono::milliseconds pause{1000};
};

// Reads the snapshots and the durable part of the log repeatedly, on its own thread. A file that
// seems damaged is read once more before it is reported. A listed file that is missing counts as
// damaged. Each pass reports a damaged file again until it is replaced or deleted.
class Scrubber {
 public:
  struct Events {
    // Called by the scrubber's thread, without locks. Must not block. The error names the file and
    // the offset.
    std::function<void(const SnapshotStore::Snapshot& snapshot, const absl::Status& damage)>
        snapshot_damaged;
    std::function<void(uint64_t segment, const absl::Status& damage)> segment_damaged;
  };

  // All outlive this.
  Scrubber(SnapshotStore& snapshots, const WriteAheadLog& log, ScrubberOptions options,
           Events events);

 private:
  void Run();
  // Runs `check`, twice if it fails, and then pauses for `bytes`. OK unless the file is damaged, or
  // missing and `is_needed`. A file that is on the disk is read from there, and does not stay in
  // the system's cache.
  absl::Status Check(const std::string& path, uint64_t bytes, bool is_on_disk,
                     const std::function<absl::Status()>& check,
                     const std::function<bool()>& is_needed);
  // Reports segments of the log that have no file.
  void ReportMissingSegments();
  SnapshotStore& snapshots_;
  const WriteAheadLog& log_;
  const ScrubberOptions options_;
  const Events events_;

  // The last member: it uses the others.
  BackgroundThread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SCRUBBER_H_
