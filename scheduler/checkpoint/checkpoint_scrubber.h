// Reads checkpoints at rest again, to find bits that have rotted while the servers still have the
// model.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_SCRUBBER_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_SCRUBBER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/mutex.h"
#include "proto/checkpoint.pb.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

// A pass ends when it has found so many damaged files.
inline constexpr size_t kMaxDamagedFiles = kMaxPartitions;

struct CheckpointScrubberOptions {
  // The job's own folder of checkpoints.
  std::string dir;
  std::string job_name;
  // How fast files are read, on average. A file is read at once, and then paid for.
  uint64_t bytes_per_s = uint64_t{8} << 20;
  // Between two passes over all files, and between two questions whether it may read.
  MonotonicDuration pause = std::chrono::seconds(1);
  // Called in place of waiting for so long after a file. For tests; null: it waits.
  std::function<void(MonotonicDuration price)> pay;
};

// Reads the job's complete checkpoints over and over on a thread of its own, newest first. A file
// that looks damaged is read once more before it is reported. A checkpoint that is deleted
// meanwhile is not damaged.
class CheckpointScrubber {
 public:
  // Called by the scrubber's thread, without locks. Must not block.
  struct Events {
    // Whether it may read. Asked before each file, and again before a file that looks damaged is
    // read once more. False while a checkpoint is being completed: its manifest may be taken back.
    std::function<bool()> may_read;
    // The error names the file and the offset. Called once for each file, and again only if it was
    // good or gone meanwhile.
    std::function<void(const CheckpointId& checkpoint, const absl::Status& damage)> damaged;
  };

  // `env` outlives this.
  CheckpointScrubber(Env& env, CheckpointScrubberOptions options, Events events);
  // Waits for the read under way, however long that takes: see Stop.
  ~CheckpointScrubber();
  CheckpointScrubber(const CheckpointScrubber&) = delete;
  CheckpointScrubber& operator=(const CheckpointScrubber&) = delete;

  // Ends the reading. No event begins once it has returned true. False: by then a read has not
  // returned. If its share hangs, only the process's end helps.
  bool Stop(MonotonicTime deadline) PAWL_EXCLUDES(mu_);

 private:
  void Run() PAWL_EXCLUDES(mu_);
  void Pass();
  void ScrubOne(const CheckpointId& id);
  // Runs `read`, which reads so many bytes, and once more if it finds damage.
  absl::Status Check(uint64_t bytes, absl::FunctionRef<absl::Status()> read);
  void Report(const CheckpointId& id, const std::string& path, const absl::Status& damage);
  // Whether the part still belongs to a complete checkpoint.
  bool IsStillNamed(const std::string& name, const CheckpointPart& part) const;
  // What it cannot read now: no damage.
  void NoteError(const absl::Status& error);

  // Waits for as long as what was read since the last time may take.
  void Pay();
  // Pays before. Both return false once it is to stop.
  bool AwaitPermission() PAWL_EXCLUDES(mu_);
  bool Sleep(MonotonicDuration duration) PAWL_EXCLUDES(mu_);
  bool IsStopping() const PAWL_EXCLUDES(mu_);

  Env& env_;
  const CheckpointScrubberOptions options_;
  const Events events_;
  const CheckpointStore store_;

  // For the thread alone.
  uint64_t unpaid_bytes_ = 0;
  // Damaged files, by path: those of this pass, and those of this pass and the one before.
  std::set<std::string> damaged_;
  std::set<std::string> reported_;
  // The first error of this pass and of the one before.
  absl::Status error_;
  absl::Status last_error_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  bool stopped_ PAWL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_SCRUBBER_H_
