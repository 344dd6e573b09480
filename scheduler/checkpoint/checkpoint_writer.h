// Completes checkpoints on its own thread.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/allowed_folders.h"
#include "proto/checkpoint.pb.h"

namespace pawl {

// Completes the checkpoint in `dir`, whose parts are all written, and returns its own folder. A
// final checkpoint may be complete already, by a former scheduler of the same job.
absl::StatusOr<std::string> CompleteCheckpoint(Env& env, const std::string& dir,
                                               const CheckpointManifest& manifest);

// Writes manifests and deletes old checkpoints, one at a time: on a shared folder that can take
// long. Thread-safe.
class CheckpointWriter {
 public:
  // Gets the checkpoint's own folder.
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;

  // `env` outlives this. A checkpoint outside of `folders` gets PERMISSION_DENIED.
  explicit CheckpointWriter(Env& env, AllowedFolders folders = {});
  // Waits for the write in progress without a deadline: see WaitUntilIdle.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Completes the checkpoint in `dir`, whose parts are all written, and calls `done` on the thread,
  // or at once with UNAVAILABLE if another checkpoint is already waiting. Then, if `keep` is not 0,
  // deletes all but the newest `keep`, whose failure is only logged.
  void Write(std::string dir, CheckpointManifest manifest, uint32_t keep, Done done)
      PAWL_EXCLUDES(mu_);

  // Whether by `deadline` every `done` has run, and old checkpoints are deleted. A write to a hung
  // file system ends only with the process.
  bool WaitUntilIdle(MonotonicTime deadline) PAWL_EXCLUDES(mu_);

 private:
  struct Work {
    std::string dir;
    CheckpointManifest manifest;
    uint32_t keep = 0;
    Done done;
  };

  void Run() PAWL_EXCLUDES(mu_);
  absl::StatusOr<std::string> Complete(const Work& work);
  void DeleteOld(const Work& work);

  Env& env_;
  const AllowedFolders folders_;
  Mutex mu_;
  CondVar wake_;
  CondVar idle_;
  bool stop_ PAWL_GUARDED_BY(mu_) = false;
  std::optional<Work> next_ PAWL_GUARDED_BY(mu_);
  bool busy_ PAWL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_WRITER_H_
