// Rereads checkpoints on disk, to find bit rot while the servers still have the model.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_SCRUBBER_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_SCRUBBER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/limits.h"
#include "client_lib/daemon/background_thread.h"
#include "proto/checkpoint.pb.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

// A pass ends after this many damaged files.
inline constexpr size_t kMaxDamagedFiles = kMaxPartitions;

struct CheckpointScrubberOptions {
  // The job's own folder of checkpoints.
  std::string dir;
  std::string job_name;
  // The average read rate. A file is read at full speed, followed by a pause.
  uint64_t bytes_per_s = uint64_t{8} << 20;
  // The pause between two passes over all files, and between two calls of may_read.
  MonotonicDuration pause = std::chrono::seconds(1);
  // Called instead of pausing after a file. For tests. Null: the scrubber pauses.
  std::function<void(MonotonicDuration pause)> throttle;
};

// Reads the job's complete checkpoints repeatedly on its own thread, newest first. A file that
// looks damaged is read a second time before it is reported. A checkpoint that is deleted meanwhile
// is not damaged.
class CheckpointScrubber {
 public:
  // Called by the scrubber's thread, without locks. Must not block.
  struct Events {
    // Whether the scrubber may read. Called before each file, and before the second read of a file
    // that looks damaged. False while a checkpoint is being completed: its manifest may be revoked.
    std::function<bool()> may_read;
    // The error names the file and the offset. Called once for each file, and again only after it
    // was undamaged or deleted.
    std::function<void(const CheckpointId& checkpoint, const absl::Status& damage)> damaged;
  };

  // `env` outlives this.
  CheckpointScrubber(Env& env, CheckpointScrubberOptions options, Events events);
  // The destructor waits for the read in progress without a deadline: see Stop.
  CheckpointScrubber(const CheckpointScrubber&) = delete;
  CheckpointScrubber& operator=(const CheckpointScrubber&) = delete;

  // Stops reading. No event is called after it has returned true. False: a read has not returned by
  // `deadline`; if the shared file system hangs, only the end of the process stops the read.
  bool Stop(MonotonicTime deadline) { return thread_.Stop(deadline); }

 private:
  void Run();
  void Pass();
  void ScrubOne(const CheckpointId& id);
  // Runs `read`, which reads `bytes` bytes of the file from the disk, and a second time if it finds
  // damage. They do not stay in the system's cache.
  absl::Status Check(const std::string& path, uint64_t bytes,
                     absl::FunctionRef<absl::Status()> read);
  void Report(const CheckpointId& id, const std::string& path, const absl::Status& damage);
  // Whether the part still belongs to a complete checkpoint.
  bool IsStillNamed(const std::string& name, const CheckpointPart& part) const;
  // A failed read is not damage.
  void NoteError(const absl::Status& error);

  // Pauses for the bytes that were read since the last call.
  void Throttle();
  // Calls Throttle first. Both return false when the scrubber stops.
  bool AwaitPermission();
  bool Sleep(MonotonicDuration duration) { return thread_.Sleep(duration); }
  bool IsStopping() const { return thread_.IsStopping(); }

  Env& env_;
  const CheckpointScrubberOptions options_;
  const Events events_;
  const CheckpointStore store_;

  // Used only by the thread.
  uint64_t unthrottled_bytes_ = 0;
  // Paths of damaged files: of this pass, and of this pass and the one before.
  std::set<std::string> damaged_;
  std::set<std::string> reported_;
  // The first error of this pass and of the one before.
  absl::Status error_;
  absl::Status last_error_;

  // Last: its destructor waits for a thread that uses the other members.
  BackgroundThread thread_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_SCRUBBER_H_
