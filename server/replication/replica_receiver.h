// The followers' side of replication: applies what primaries send.
#ifndef PAWL_SERVER_REPLICATION_REPLICA_RECEIVER_H_
#define PAWL_SERVER_REPLICATION_REPLICA_RECEIVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/request_handler.h"
#include "proto/replication.pb.h"
#include "server/replication/durable_log.h"
#include "server/replication/entry_tail.h"
#include "server/replication/log_entry.h"
#include "server/replication/replica_map.h"
#include "server/replication/waiting_calls.h"
#include "server/shard/snapshot/partition_loader.h"
#include "server/threads/helper_threads.h"

namespace pawl {

// The bytes of all snapshots that arrive at one time, at most one for each hosted partition. One is
// always accepted. They become partitions as they arrive.
inline constexpr size_t kMaxPartialSnapshotBytes = kMaxSnapshotBytes;
// A partial snapshot is discarded after this long without another piece. A primary abandons a piece
// far sooner, and then restarts the snapshot.
inline constexpr std::chrono::seconds kSnapshotPieceTimeout{60};

// Serves the rpcs of proto/replication.proto. Thread-safe; owns no thread. Work on the disk runs on
// threads of the log: the threads that bring the calls are few, and also bring pushes and pulls.
//
// replica_receiver.cc applies entries, replica_receiver_state.cc replaces a replica's state by a
// snapshot or an earlier one.
class ReplicaReceiver {
 public:
  // All outlive this. `max_partial_snapshot_bytes`: the limit for incomplete snapshots. `helpers`:
  // see DataPlaneOptions.
  ReplicaReceiver(ReplicaMap& replica_map, WaitingCalls& waiting, EntryTail& tail,
                  const Clock& clock, size_t max_partial_snapshot_bytes, HelperThreads* helpers)
      : replica_map_(replica_map),
        waiting_(waiting),
        tail_(tail),
        clock_(clock),
        max_bytes_arriving_(max_partial_snapshot_bytes),
        helpers_(helpers) {}

  // Call before the first routing; without a log nothing is made durable.
  void SetLog(DurableLog* log) { log_ = log; }

  // For how long this server promises a primary, on request, not to take over; zero, the default:
  // no promise.
  void SetPromise(MonotonicDuration promise);

  void Replicate(IncomingMessage message, CallContext context, RequestHandler::Reply reply);
  void InstallSnapshot(IncomingMessage message, CallContext context, RequestHandler::Reply reply);
  void GoBack(IncomingMessage message, CallContext context, RequestHandler::Reply reply);

  // Discards partial snapshots whose remaining pieces will not arrive.
  void Tick();

 private:
  // A snapshot that has arrived in part.
  struct PartialSnapshot {
    PartialSnapshot(const InstallSnapshotRequest& request, const PartitionOptions& options);
    bool IsOf(const InstallSnapshotRequest& request) const;

    const uint32_t partition;
    const std::string node;
    const uint64_t incarnation;
    const uint64_t primary_since;
    const uint64_t log_index;

    // Guarded by the receiver's mu_.
    MonotonicTime last_piece;
    size_t counted_bytes = 0;
    bool discarded = false;
    // Its bytes count until that is done, even if it is discarded meanwhile.
    bool is_stored = false;

    // Held while a piece is decoded, which takes time; acquired before the receiver's mu_.
    Mutex mu;
    PartitionLoader loader PAWL_GUARDED_BY(mu);
    uint64_t bytes PAWL_GUARDED_BY(mu) = 0;
    // The offset of the last piece: a piece whose answer was lost is sent again.
    uint64_t last_offset PAWL_GUARDED_BY(mu) = 0;
    uint32_t crc PAWL_GUARDED_BY(mu) = 0;
    // Set after the last piece, until it is installed.
    std::unique_ptr<Partition> loaded PAWL_GUARDED_BY(mu);
    bool is_complete PAWL_GUARDED_BY(mu) = false;
  };
  using PartialSnapshots =
      absl::btree_map<uint32_t, std::shared_ptr<PartialSnapshot>>;  // by partition
  // The call with the last piece of a snapshot.
  struct Installation {
    std::shared_ptr<Replica> replica;
    InstallSnapshotRequest request;
    std::shared_ptr<PartialSnapshot> snapshot;
    CallContext context;
    RequestHandler::Reply reply;
    std::unique_ptr<Partition> partition = nullptr;
  };

  absl::Status CheckJob(const ReplicaMap::View& view, const ReplicationHeader& header) const;
  // OK if this server's routing names the sender as the primary of a partition that this server
  // follows. CheckTerm detects a change between this and the replica's lock.
  absl::Status CheckSender(const ReplicaMap::View& view, const ReplicationHeader& header,
                           uint32_t partition) const;
  // OK if the replica is a follower of the primary of the term `primary_since`, the sender of
  // `header`.
  absl::Status CheckFollows(const ReplicationHeader& header, uint64_t primary_since,
                            Replica& replica) const PAWL_REQUIRES(replica.mu);
  // OK if the replica follows the primary of the term `primary_since`.
  absl::Status CheckTerm(const Replica& replica, uint64_t primary_since) const
      PAWL_REQUIRES(replica.mu);
  // The changes of one partition in a request, and their result.
  struct PartitionChanges {
    uint32_t partition = 0;
    // In order.
    std::vector<size_t> changes;
    bool is_asked = false;
    absl::Status status;
    // DATA_LOSS if a change contradicts the replica's state. The other partitions continue.
    absl::Status divergence;
    ReplicaPosition position;
    // The last change, which the answer waits for; nullopt if the replica accepts none.
    std::optional<ChangeMark> mark;
  };
  struct Received;
  // Whether the work is worth sharing with helpers: the best parameters are copied, or all
  // gradients of a step are applied.
  bool MayTouchAllRows(const Received& received) const;
  absl::Status ApplyChanges(const Received& received, PartitionChanges& part);
  // Answers with the first error, or once all changes are durable.
  void Acknowledge(Received& received, CallContext context, RequestHandler::Reply reply);
  absl::Status ApplyEntry(const ChangeView& change, const ByteView& bytes,
                          const std::shared_ptr<const void>& owner, Replica& replica)
      PAWL_REQUIRES(replica.mu);
  // The sender repeats a refused request, so refusals are logged at most once per
  // kStreamRefusalLogInterval.
  bool ShouldLogRefusal();
  // Discards the snapshot and returns the next one.
  PartialSnapshots::iterator Discard(PartialSnapshots::iterator snapshot) PAWL_REQUIRES(mu_);
  void Discard(const std::shared_ptr<PartialSnapshot>& snapshot);
  // Finds the snapshot that the piece continues, or starts it.
  absl::StatusOr<std::shared_ptr<PartialSnapshot>> Find(const InstallSnapshotRequest& request,
                                                        const PartitionOptions& options);
  // Decodes the piece, unless it is a repetition.
  absl::Status DecodePiece(const InstallSnapshotRequest& request, const ByteView& data,
                           PartialSnapshot& snapshot);
  absl::Status CountBytes(PartialSnapshot& snapshot, size_t size);
  // UNAVAILABLE: the replica is gone, or follows another primary.
  static absl::Status CheckDurable(const ChangeMark& mark);
  // The snapshot with the piece.
  absl::StatusOr<std::shared_ptr<PartialSnapshot>> ReceivePiece(
      const ReplicaMap::View& view, const InstallSnapshotRequest& request, const ByteView& data);
  // The answer if the replica need not, or must not, become the snapshot's state.
  std::optional<absl::Status> CheckInstall(const InstallSnapshotRequest& request, Replica& replica)
      PAWL_REQUIRES(replica.mu);
  static absl::Status CheckNotInstalling(const Replica& replica) PAWL_REQUIRES(replica.mu);
  absl::Status BeginGoBack(Replica& replica, const GoBackRequest& request);
  absl::Status EndGoBack(Replica& replica, const GoBackRequest& request,
                         absl::StatusOr<std::unique_ptr<Partition>> read);
  void EndReadBack();
  void OnGoBackDone(const std::shared_ptr<Replica>& replica, const GoBackRequest& request,
                    CallContext context, RequestHandler::Reply reply);
  absl::Status CheckGoBack(const GoBackRequest& request, Replica& replica) const
      PAWL_REQUIRES(replica.mu);
  // UNAVAILABLE: a snapshot of the partition is being stored.
  absl::Status BeginStore(PartialSnapshot& snapshot);
  void EndStore(PartialSnapshot& snapshot);
  // Stores the snapshot, on a thread of the log, and replaces the replica's state by it.
  void Install(std::unique_ptr<Installation> install);
  void EndInstall(std::unique_ptr<Installation> install,
                  absl::StatusOr<std::unique_ptr<StoredSnapshot>> stored);
  // Moves from the partition only if it returns OK.
  absl::Status ReplaceState(Installation& install, std::unique_ptr<StoredSnapshot> stored);
  // Answers the last piece once the replica's state is durable.
  void AnswerInstall(const std::shared_ptr<Replica>& replica, const InstallSnapshotRequest& request,
                     absl::Status status, CallContext context, RequestHandler::Reply reply);

  ReplicaMap& replica_map_;
  WaitingCalls& waiting_;
  EntryTail& tail_;
  const Clock& clock_;
  const size_t max_bytes_arriving_;
  HelperThreads* const helpers_;
  DurableLog* log_ = nullptr;

  Mutex mu_;
  MonotonicDuration promise_ PAWL_GUARDED_BY(mu_) = MonotonicDuration::zero();
  PartialSnapshots partial_snapshots_ PAWL_GUARDED_BY(mu_);
  // Partitions; a snapshot of each is being stored.
  absl::btree_set<uint32_t> storing_ PAWL_GUARDED_BY(mu_);
  // Includes the snapshots that are being installed.
  size_t bytes_arriving_ PAWL_GUARDED_BY(mu_) = 0;
  // One partition at a time is read back: it takes the memory of a second replica and reads the
  // log.
  bool reads_back_ PAWL_GUARDED_BY(mu_) = false;
  MonotonicTime next_refusal_logged_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICA_RECEIVER_H_
