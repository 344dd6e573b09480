// A server's side of checkpoints: writes its partitions while training continues, and reads them
// back.
#ifndef PAWL_SERVER_DATA_PLANE_CHECKPOINTER_H_
#define PAWL_SERVER_DATA_PLANE_CHECKPOINTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/allowed_folders.h"
#include "proto/server_control.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

// A checkpoint that the scheduler has not asked for in this time is abandoned: the scheduler is
// gone or has started another one.
inline constexpr std::chrono::seconds kCheckpointAskInterval{120};

// Carries out ServerControl.Checkpoint and LoadCheckpoint (proto/server_control.proto). The thread
// that brings a partition to the cut takes a snapshot of it in memory. One thread of this class
// writes the snapshots and reads checkpoints. At the job's end the partitions no longer change, so
// this thread takes them one by one and at most one snapshot is in memory. There is one checkpoint
// at a time; a later one replaces it. Thread-safe.
//
// Lock order: a replica's lock, then this object's.
class Checkpointer {
 public:
  using CheckpointDone = absl::AnyInvocable<void(absl::StatusOr<CheckpointOnServerResponse>)>;
  using LoadDone = absl::AnyInvocable<void(absl::Status)>;

  // The references outlive this object or its Stop. Checkpoints outside `folders` are refused with
  // PERMISSION_DENIED: by the name at once, by the place to which links lead on the thread. Without
  // a thread, for tests with simulated time, the owner calls Work.
  Checkpointer(Env& env, DataPlane& plane, const Clock& clock, AllowedFolders folders = {},
               bool has_thread = true);
  // Calls Stop.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  void Checkpoint(const CheckpointOnServerRequest& request, CheckpointDone done) PAWL_EXCLUDES(mu_);
  void Load(const LoadCheckpointRequest& request, LoadDone done) PAWL_EXCLUDES(mu_);

  // Writes one part or loads a checkpoint, if there is such work. Only for the thread, or the owner
  // of a checkpointer without one.
  void Work() PAWL_EXCLUDES(mu_);

  // Aborts the work under way. Idempotent. Call it before closing the data plane.
  void Stop() PAWL_EXCLUDES(mu_);

 private:
  struct Part {
    ChangeMark mark;
    // Set until it is written. Never set at the job's end.
    std::optional<HeldSnapshot> held;
    std::optional<CheckpointPart> written;
    // The part was in an answer. If the scheduler asks for the job's end again after that, it did
    // not find some part as reported.
    bool reported = false;
  };
  // One checkpoint: first its constants, then the members guarded by mu_.
  struct Attempt {
    CheckpointId id;
    std::string dir;
    std::shared_ptr<Cut> cut;
    // Atomic. A partition moved away, so its cut did not become final here.
    std::atomic<bool> lost{false};

    MonotonicTime asked;
    // The partitions that the newest request is about, possibly none. Not set until they are known.
    std::optional<std::vector<uint32_t>> wanted;
    absl::btree_map<uint32_t, Part> parts;
    // Not OK: the attempt has ended for this reason.
    absl::Status status;
    CheckpointDone done;
  };
  struct LoadAttempt {
    LoadCheckpointRequest request;
    LoadDone done;
  };
  // Run without locks.
  using Actions = std::vector<absl::AnyInvocable<void()>>;

  // Begins the attempt that was requested, or joins it. Null: the request was answered.
  std::shared_ptr<Attempt> AttemptFor(const CheckpointOnServerRequest& request, CheckpointDone done,
                                      Actions& actions) PAWL_EXCLUDES(mu_);
  std::shared_ptr<Attempt> MakeAttempt(const CheckpointOnServerRequest& request);
  // `wanted`: the partitions whose primary this server is, or why they are not at the cut.
  void OnWanted(const std::shared_ptr<Attempt>& attempt,
                const absl::StatusOr<std::vector<uint32_t>>& wanted, Actions& actions)
      PAWL_EXCLUDES(mu_);
  // Called when the partition is at the cut.
  void Take(const std::shared_ptr<Attempt>& attempt, const std::shared_ptr<Replica>& replica)
      PAWL_REQUIRES(replica->mu) PAWL_EXCLUDES(mu_);
  void Abandon(const std::shared_ptr<Attempt>& attempt, absl::Status status, Actions& actions)
      PAWL_REQUIRES(mu_);
  // Answers if everything that is wanted has been written.
  void MaybeAnswer(const std::shared_ptr<Attempt>& attempt, Actions& actions) PAWL_REQUIRES(mu_);
  void Run() PAWL_EXCLUDES(mu_);
  // Writes the part unless it exists. At the job's end it first takes the partition; ABORTED: the
  // partition has moved.
  absl::Status Write(const Attempt& attempt, uint32_t partition, Part& part);
  absl::StatusOr<CheckpointPart> WritePart(CheckpointStore& store, const CheckpointId& id,
                                           uint32_t partition, HeldSnapshot held);
  absl::Status LoadAll(const LoadCheckpointRequest& request);
  bool IsStopping() PAWL_EXCLUDES(mu_);
  absl::Status LoadOne(const CheckpointStore& store, const CheckpointManifest& manifest,
                       uint32_t partition);

  Env& env_;
  DataPlane& plane_;
  const Clock& clock_;
  const AllowedFolders folders_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  // The newest attempt, even after it has ended.
  std::shared_ptr<Attempt> attempt_ PAWL_GUARDED_BY(mu_);
  // Partitions of attempt_ to write, in the order of their cuts. At the job's end these are the
  // unwritten ones and the reported ones: the scheduler asks again if it does not find a part,
  // which is then rewritten.
  std::deque<uint32_t> to_write_ PAWL_GUARDED_BY(mu_);
  std::optional<LoadAttempt> load_ PAWL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_CHECKPOINTER_H_
