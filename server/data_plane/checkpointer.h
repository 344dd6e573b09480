// A server's part in checkpoints: writing its partitions' parts while training goes on, and reading
// them back.
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
#include "proto/server_control.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

// A checkpoint that nobody has asked for in so long is given up: its scheduler is gone or has
// another one.
inline constexpr std::chrono::seconds kCheckpointAskInterval{120};

// Carries out ServerControl.Checkpoint and LoadCheckpoint (proto/server_control.proto). The
// partitions are held in memory at the moment of the cut, by whoever brings them there, and written
// by one thread of this class, which also reads. At the job's end nothing moves any more, and that
// thread itself takes one after the other: no more than one is held then. There is one checkpoint
// at a time: a later one ends it. Thread-safe.
//
// Locks: a replica's, then this one's.
class Checkpointer {
 public:
  using CheckpointDone = absl::AnyInvocable<void(absl::StatusOr<CheckpointOnServerResponse>)>;
  using LoadDone = absl::AnyInvocable<void(absl::Status)>;

  // All outlive this, or Stop.
  Checkpointer(Env& env, DataPlane& plane, const Clock& clock);
  // Stop.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  void Checkpoint(const CheckpointOnServerRequest& request, CheckpointDone done) PAWL_EXCLUDES(mu_);
  void Load(const LoadCheckpointRequest& request, LoadDone done) PAWL_EXCLUDES(mu_);

  // Ends what is under way. Idempotent; to be called before the data plane is closed.
  void Stop() PAWL_EXCLUDES(mu_);

 private:
  struct Part {
    ChangeMark mark;
    // Until it is written; never of the job's end.
    std::optional<HeldSnapshot> held;
    std::optional<CheckpointPart> written;
    // It was in an answer: who asks for the job's end again after that has not found some part as
    // it was told.
    bool told = false;
  };
  // One checkpoint. Its constants, then what mu_ guards.
  struct Attempt {
    CheckpointId id;
    std::string dir;
    std::shared_ptr<Cut> cut;
    // Synchronises itself: what was cut did not become final here, since the partition has moved.
    std::atomic<bool> lost{false};

    MonotonicTime asked;
    // The partitions that the newest question is about, which may be none; not set before that is
    // known.
    std::optional<std::vector<uint32_t>> wanted;
    absl::btree_map<uint32_t, Part> parts;
    // Not OK: it is over, for this reason.
    absl::Status status;
    CheckpointDone done;
  };
  struct LoadAttempt {
    LoadCheckpointRequest request;
    LoadDone done;
  };
  // To be called without locks.
  using Actions = std::vector<absl::AnyInvocable<void()>>;

  std::shared_ptr<Attempt> MakeAttempt(const CheckpointOnServerRequest& request);
  // The partition is at the cut.
  void Take(const std::shared_ptr<Attempt>& attempt, const std::shared_ptr<Replica>& replica)
      PAWL_REQUIRES(replica->mu) PAWL_EXCLUDES(mu_);
  void GiveUp(const std::shared_ptr<Attempt>& attempt, absl::Status status, Actions& actions)
      PAWL_REQUIRES(mu_);
  // Answers, if all that is wanted is written.
  void AnswerIfComplete(const std::shared_ptr<Attempt>& attempt, Actions& actions)
      PAWL_REQUIRES(mu_);
  void Run() PAWL_EXCLUDES(mu_);
  // Writes the part unless it is there; of the job's end takes the partition first, which is
  // ABORTED if it has moved.
  absl::Status Write(const Attempt& attempt, uint32_t partition, Part& part);
  absl::StatusOr<CheckpointPart> WritePart(CheckpointStore& store, const CheckpointId& id,
                                           uint32_t partition, HeldSnapshot held);
  absl::Status LoadAll(const LoadCheckpointRequest& request);
  absl::Status LoadOne(const CheckpointStore& store, const CheckpointManifest& manifest,
                       uint32_t partition);

  Env& env_;
  DataPlane& plane_;
  const Clock& clock_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  // The newest one, also when it is over.
  std::shared_ptr<Attempt> attempt_ PAWL_GUARDED_BY(mu_);
  // Partitions of attempt_ to be written, in the order in which they were cut. Of the job's end
  // those that are not written, and those that were told of: what the scheduler does not find is
  // written again.
  std::deque<uint32_t> to_write_ PAWL_GUARDED_BY(mu_);
  std::optional<LoadAttempt> load_ PAWL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_CHECKPOINTER_H_
