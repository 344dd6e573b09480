// The other side of replication: applies what primaries send.
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
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/request_handler.h"
#include "proto/replication.pb.h"
#include "server/replication/change_log.h"
#include "server/replication/entry_tail.h"
#include "server/replication/log_entry.h"
#include "server/replication/replica_map.h"
#include "server/replication/waiting_calls.h"
#include "server/shard/snapshot/partition_loader.h"
#include "server/threads/helper_threads.h"

namespace pawl {

// Of one partition of 8 GiB of parameters, with the keys of narrow rows; larger ones cannot be
// moved.
inline constexpr size_t kMaxSnapshotBytes = size_t{16} << 30;
// Snapshots that arrive at one time; a primary sends only a few.
inline constexpr size_t kMaxSnapshotsArriving = 64;
// Of all of them together; one is always taken. They become partitions as they arrive.
inline constexpr size_t kMaxBytesArriving = kMaxSnapshotBytes;
// Without another piece, what has arrived is given up. A primary gives up a piece far sooner, and
// then begins anew.
inline constexpr std::chrono::seconds kSnapshotPieceTimeout{60};

// The rpcs of proto/replication.proto. Thread-safe; owns no thread.
class ReplicaReceiver {
 public:
  // All outlive this. `max_bytes_arriving`: of snapshots that are not there yet. `helpers`: see
  // DataPlaneOptions.
  ReplicaReceiver(ReplicaMap& replica_map, WaitingCalls& waiting, EntryTail& tail,
                  const Clock& clock, size_t max_bytes_arriving, HelperThreads* helpers)
      : replica_map_(replica_map),
        waiting_(waiting),
        tail_(tail),
        clock_(clock),
        max_bytes_arriving_(max_bytes_arriving),
        helpers_(helpers) {}

  // Before the first routing; without it nothing is written down.
  void SetLog(ChangeLog* log) { log_ = log; }

  // How long a primary that asks is promised that this server will not take its place; zero, at
  // first: not at all.
  void SetPromise(MonotonicDuration promise);

  void Replicate(IncomingMessage message, CallContext context, RequestHandler::Reply reply);
  void InstallSnapshot(IncomingMessage message, CallContext context, RequestHandler::Reply reply);
  void GoBack(IncomingMessage message, CallContext context, RequestHandler::Reply reply);

  // Forgets what has arrived of snapshots of which no more will come.
  void Tick();

 private:
  // A snapshot of which pieces have arrived.
  struct Arriving {
    Arriving(const InstallSnapshotRequest& request, const PartitionOptions& options);
    bool IsOf(const InstallSnapshotRequest& request) const;

    const uint32_t partition;
    const std::string node;
    const uint64_t incarnation;
    const uint64_t primary_since;
    const uint64_t log_index;

    // Guarded by the receiver's mu_.
    MonotonicTime last_piece;
    size_t counted_bytes = 0;
    bool forgotten = false;

    // Held while a piece is read, which takes long for a piece; taken before the receiver's mu_.
    Mutex mu;
    PartitionLoader loader PAWL_GUARDED_BY(mu);
    uint64_t bytes PAWL_GUARDED_BY(mu) = 0;
    // Of the last piece: a piece whose answer was lost comes again.
    uint64_t last_offset PAWL_GUARDED_BY(mu) = 0;
    uint32_t crc PAWL_GUARDED_BY(mu) = 0;
    // After the last piece, until it is being put in place.
    std::unique_ptr<Partition> whole PAWL_GUARDED_BY(mu);
    bool is_whole PAWL_GUARDED_BY(mu) = false;
  };
  using ArrivingSnapshots = absl::btree_map<uint32_t, std::shared_ptr<Arriving>>;  // by partition

  absl::Status CheckJob(const ReplicaMap::View& view, const ReplicationHeader& header) const;
  // OK if the sender is, by this server's routing, the primary of a partition of which this server
  // has another replica. What changes between this and the lock of the replica is found by
  // CheckTerm.
  absl::Status CheckSender(const ReplicaMap::View& view, const ReplicationHeader& header,
                           uint32_t partition) const;
  // OK if the replica follows, and follows the primary that became it at `primary_since`, who has
  // sent `header`.
  absl::Status CheckFollows(const ReplicationHeader& header, uint64_t primary_since,
                            Replica& replica) const PAWL_REQUIRES(replica.mu);
  // OK if the replica follows the primary that became it at `primary_since`.
  absl::Status CheckTerm(const Replica& replica, uint64_t primary_since) const
      PAWL_REQUIRES(replica.mu);
  // The changes of one partition in a request, and what comes of them.
  struct Share {
    uint32_t partition = 0;
    // In their order.
    std::vector<size_t> changes;
    bool is_asked = false;
    absl::Status status;
    ReplicaPosition position;
    // Of the last change, to be waited for; nothing if the replica takes none.
    std::optional<ChangeMark> mark;
  };
  struct Received;
  // Whether it is worth while to tell others of it: the best parameters are copied, or all
  // gradients of a step applied.
  bool MayTouchAllRows(const Received& received) const;
  absl::Status Take(const Received& received, Share& share);
  // Answers with the first error, or once all changes are durable.
  void Acknowledge(Received& received, CallContext context, RequestHandler::Reply reply);
  absl::Status ApplyEntry(const ChangeView& change, const ByteView& bytes,
                          const std::shared_ptr<const void>& owner, Replica& replica)
      PAWL_REQUIRES(replica.mu);
  // What is refused is sent again and again: of all of it some is logged
  // (kStreamRefusalLogInterval).
  bool MayLogRefusal();
  // Forgets it and returns the one after it.
  ArrivingSnapshots::iterator Forget(ArrivingSnapshots::iterator snapshot) PAWL_REQUIRES(mu_);
  void Forget(const std::shared_ptr<Arriving>& snapshot);
  // The snapshot that the piece is of, which it begins or goes on with.
  absl::StatusOr<std::shared_ptr<Arriving>> Find(const InstallSnapshotRequest& request,
                                                 const PartitionOptions& options);
  // Reads the piece, unless it has come before.
  absl::Status TakePiece(const InstallSnapshotRequest& request, Arriving& snapshot);
  absl::Status CountBytes(Arriving& snapshot, size_t size);
  // UNAVAILABLE: the replica is gone, or follows another primary.
  static absl::Status CheckDurable(const ChangeMark& mark);
  absl::Status TakeSnapshot(const ReplicaMap::View& view, const InstallSnapshotRequest& request);
  // What to answer if the replica need not, or must not, become what the snapshot says.
  std::optional<absl::Status> CheckInstall(const InstallSnapshotRequest& request, Replica& replica)
      PAWL_REQUIRES(replica.mu);
  static absl::Status CheckNotInstalling(const Replica& replica) PAWL_REQUIRES(replica.mu);
  absl::Status BeginGoBack(Replica& replica, const GoBackRequest& request);
  absl::Status EndGoBack(Replica& replica, const GoBackRequest& request,
                         absl::StatusOr<std::unique_ptr<Partition>> read);
  void EndReadBack();
  void OnWentBack(const std::shared_ptr<Replica>& replica, const GoBackRequest& request,
                  CallContext context, RequestHandler::Reply reply);
  absl::Status CheckGoBack(const GoBackRequest& request, Replica& replica) const
      PAWL_REQUIRES(replica.mu);
  // Takes the partition only if it returns OK.
  absl::Status Install(const ReplicaMap::View& view, const InstallSnapshotRequest& request,
                       std::unique_ptr<Partition>& partition);

  ReplicaMap& replica_map_;
  WaitingCalls& waiting_;
  EntryTail& tail_;
  const Clock& clock_;
  const size_t max_bytes_arriving_;
  HelperThreads* const helpers_;
  ChangeLog* log_ = nullptr;

  Mutex mu_;
  MonotonicDuration promise_ PAWL_GUARDED_BY(mu_) = MonotonicDuration::zero();
  ArrivingSnapshots arriving_ PAWL_GUARDED_BY(mu_);
  // Of these, and of those that are being put in place.
  size_t bytes_arriving_ PAWL_GUARDED_BY(mu_) = 0;
  // One partition at a time is: it takes the memory of a second replica, and reads the log.
  bool reads_back_ PAWL_GUARDED_BY(mu_) = false;
  MonotonicTime next_refusal_logged_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICA_RECEIVER_H_
