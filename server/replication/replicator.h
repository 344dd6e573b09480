// The primary's side of replication: streams to the other servers, acknowledgements, catch-up and
// snapshots.
#ifndef PAWL_SERVER_REPLICATION_REPLICATOR_H_
#define PAWL_SERVER_REPLICATION_REPLICATOR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/transport.h"
#include "proto/scheduler.pb.h"
#include "server/replication/backpressure.h"
#include "server/replication/durable_log.h"
#include "server/replication/entry_tail.h"
#include "server/replication/log_entry.h"
#include "server/replication/replica.h"
#include "server/replication/replication_stream.h"

namespace pawl {

// Streams between two servers, besides the one on which learners catch up. While one carries a
// batch, the other one collects the next.
inline constexpr uint32_t kStreamsPerServer = 2;
// The limit on snapshots and GoBack requests in progress. A snapshot starts after the last piece of
// the one before was sent: pushes to a partition in transfer cost about twice as much. A server
// that is asked to end does not wait for that.
inline constexpr size_t kMaxTransfers = 2;
inline constexpr size_t kSnapshotPieceBytes = size_t{512} << 10;
// The deadline of a piece. The last piece is answered only when the whole snapshot is loaded and
// written, and gets the TransferTime of the whole in addition.
inline constexpr std::chrono::milliseconds kSnapshotPieceDeadline{5000};
// The pause after a piece that did not arrive; it doubles with each try, up to the second value.
// After the third the snapshot is abandoned: the follower is silent, and the entries held for it
// take memory.
inline constexpr std::chrono::milliseconds kSnapshotRetryInterval{50};
inline constexpr std::chrono::milliseconds kMaxPieceRetryInterval{400};
inline constexpr std::chrono::milliseconds kPieceTriesTimeout{8000};
// Entries that a follower lacks are read from the log in chunks of this size. One chunk is on the
// stream while the next one is read.
inline constexpr size_t kCatchUpChunkBytes = kMaxStreamRequestBytes;
// A read that takes longer is abandoned, because the disk does not answer, and its follower gets a
// snapshot from memory. The second value applies while the disk is known to fail.
inline constexpr std::chrono::seconds kLogReadTimeout{30};
inline constexpr std::chrono::seconds kFailingLogReadTimeout{2};
// A follower that is still, or again, busy going back this long after its first such answer, and
// after the deadline of the request, gets a snapshot: pushes may wait for it. If its disk hangs, it
// accepts none, and is reported as silent.
inline constexpr std::chrono::seconds kGoBackTimeout{30};
// After this many failed GoBack requests a follower gets a snapshot.
inline constexpr uint32_t kMaxGoBacks = 3;
// The pause before GoBack is repeated to a follower that was not reached or is busy with another
// one.
inline constexpr std::chrono::milliseconds kGoBackRetryInterval{200};
// The longest pause before another snapshot. The pause starts at kSnapshotRetryInterval and doubles
// with each abandoned snapshot.
inline constexpr std::chrono::milliseconds kMaxSnapshotRetryInterval{5000};
// At most one refusal of a server is logged in this time.
inline constexpr std::chrono::seconds kStreamRefusalLogInterval{1};
// A follower that refuses this many snapshots in a row, as with a full disk, is reported.
inline constexpr uint32_t kMaxRefusedInstalls = 3;
// How long an undelivered or refused snapshot is a reason to report a server or follower.
inline constexpr std::chrono::seconds kFailedInstallEvidenceTime{1};
// How often a primary asks its backups for promises while the scheduler is silent.
inline constexpr std::chrono::milliseconds kPromiseInterval{100};

struct ReplicatorOptions {
  // The limit for all snapshots together. Below it the rate follows the spare capacity: RepairPace
  // and kBusyRepairBytesPerS.
  uint64_t repair_bytes_per_s = uint64_t{1} << 30;
  // The share of the time in which threads wait for a processor. Thread-safe; null: 0.
  std::function<double()> processor_pressure;
  // The size of one piece of a snapshot.
  size_t snapshot_piece_bytes = kSnapshotPieceBytes;
  // Larger snapshots are not sent.
  uint64_t max_snapshot_bytes = kMaxSnapshotBytes;
  LearnerLimits learners;
};

// How followers have caught up since the process started.
struct CatchUpFigures {
  // Followers that lacked nothing or only entries in memory, that got entries from the log, that
  // first went back to the last shared entry, and that got a snapshot.
  std::atomic<uint64_t> by_tail{0};
  std::atomic<uint64_t> by_log{0};
  std::atomic<uint64_t> by_going_back{0};
  std::atomic<uint64_t> by_snapshot{0};
  // Bytes sent of snapshots, and of entries that were written before the follower was asked.
  std::atomic<uint64_t> snapshot_bytes{0};
  std::atomic<uint64_t> entry_bytes{0};
};

// Thread-safe; owns no thread. The transport and the log must have released all calls before this
// is destroyed. Lock order: a replica's, this one's, a stream's.
//
// replicator.cc has the streams and acknowledgements, replicator_catch_up.cc how a follower gets
// the entries that it lacks, replicator_snapshots.cc how it gets a snapshot.
class Replicator final : public ReplicationStream::Owner {
 public:
  // The server whose replicas are replicated; called without locks.
  class Owner {
   public:
    // The sender of a request and its epoch.
    virtual ReplicationHeader Header() const = 0;
    // A receiver refused a request and attached this newer routing.
    virtual void AdoptRouting(const RoutingTable& routing) = 0;
    // Null if the partition is not hosted.
    virtual std::shared_ptr<Replica> FindReplica(uint32_t partition) const = 0;
    // The replica may have committed more.
    virtual void OnAdvanced(const std::shared_ptr<Replica>& replica) = 0;

   protected:
    ~Owner() = default;
  };

  // `tail`: the latest entries of this server's replicas. All outlive this.
  Replicator(const ReplicatorOptions& options, Transport& transport, const Clock& clock,
             const EntryTail& tail, Owner& owner);

  // Call before the first routing. Without a log, a follower that lacks more than the tail has gets
  // a snapshot.
  void SetLog(DurableLog* log) { log_ = log; }

  // Sets the followers that the routing gives to a primary. Followers that it already had continue
  // where they are; others are asked for their position. `is_new`: the partition has never been
  // changed, so its backups have everything. (A learner may not even have an empty partition.)
  void SetFollowers(Replica& replica, const RoutingTable& routing, bool is_new)
      PAWL_REQUIRES(replica.mu);
  // Closes the streams to server incarnations that the routing does not name, and releases what the
  // transport keeps for addresses that it does not name.
  void PruneServers(const RoutingTable& routing);

  // Sends what is queued on the streams. Call it without locks after appending entries.
  void PumpStreams();
  // PumpStreams, and starts reads, go-backs and snapshots that are due.
  void Pump();
  // `asks`: the scheduler is silent, so promises are wanted.
  void Tick(bool asks);

  // Until when, by LeaseNow, the server has promised not to take over; MonotonicTime::min() without
  // a promise.
  MonotonicTime PromisedUntil(const std::string& node, uint64_t incarnation) const;

  // Servers that have accepted nothing for that long although something is queued, or accept it too
  // slowly.
  std::vector<SilentServer> SilentServers(MonotonicDuration duration) const;

  // Removes the rate limit of snapshots, when this server must end soon.
  void LiftLimit();
  const CatchUpFigures& figures() const { return figures_; }
  // Runs `action` after `delay`.
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
    transport_.After(delay, std::move(action));
  }
  // Starts no stream, snapshot or GoBack from now on. Calls in flight, and a snapshot that is being
  // sent, end with the transport.
  void Close();

  // Reports the replica's followers that cannot get a snapshot, and its learners that have caught
  // up. Restarts those that fell too far behind or whose log read takes too long; `request` says
  // whether the disk fails. Does nothing while another thread holds the replica's lock. Reports no
  // learner while the previous primary may still serve under this server's promise: a learner has
  // given no promise, and could be made primary without waiting for that one.
  void ReportFollowers(Replica& replica, HeartbeatRequest& request);

 private:
  using Server = ReplicationStream::Server;
  struct Peer {
    std::vector<std::shared_ptr<ReplicationStream>> streams;
    // For learners until they have caught up, so that a call that waits for a backup does not wait
    // for what learners lack.
    std::shared_ptr<ReplicationStream> catch_up;
    MonotonicTime promised_until = MonotonicTime::min();
    // Undelivered snapshots since the last delivered one: when the piece was sent with which the
    // first one failed, and when the last one failed. (The pieces before it were answered: a long
    // transfer is not silence.)
    std::optional<MonotonicTime> installs_fail_since;
    MonotonicTime install_failed_at = MonotonicTime::min();
    MonotonicTime next_refusal_logged = MonotonicTime::min();
    // One of its replicas executes a GoBack; the server reads back one at a time.
    bool goes_back = false;
  };
  struct Install;
  // Names the follower whose state the end of a call changes. The call has no effect if that state
  // has changed since.
  struct Attempt {
    std::shared_ptr<Replica> replica;
    Server server;
    uint64_t number = 0;  // Follower::attempt
  };
  // A queued request to go back.
  struct QueuedGoBack {
    Attempt attempt;
    std::string address;
    GoBackRequest request;
  };
  // Work that follows an answer once no locks are held.
  struct AfterAnswer {
    bool changes_streams = false;
    // Pushes waited for it.
    bool is_of_backup = false;
    std::vector<Attempt> ask_later;
  };
  // Entries of the log that a follower lacks.
  struct LogRead {
    Attempt attempt;
    uint64_t first = 0;
    uint64_t last = 0;
  };

  Peer& PeerAt(const ServerAddress& address) PAWL_REQUIRES(mu_);
  std::shared_ptr<ReplicationStream> NewStream(const ServerAddress& address) PAWL_REQUIRES(mu_);
  std::vector<std::shared_ptr<ReplicationStream>> AllStreams() const PAWL_EXCLUDES(mu_);
  // ReplicationStream::Owner.
  ReplicationHeader Header() const override { return owner_.Header(); }
  void OnAnswer(const Server& server, const ReplicateResponse& response,
                const std::vector<uint32_t>& asked, MonotonicTime sent) override;
  void OnFailure(const Server& server, const absl::Status& status) override;
  void TakePosition(const Server& server, const ReplicaPosition& position, bool was_asked,
                    AfterAnswer& after);
  // An asked follower is at `position`: decides how it gets what it lacks.
  void ChooseCatchUp(const std::shared_ptr<Replica>& replica, Follower& follower,
                     const ReplicaPosition& position, AfterAnswer& after)
      PAWL_REQUIRES(replica->mu);
  // Starts catching up after `index`, the last entry that the follower shares with the primary.
  void BeginCatchUp(const std::shared_ptr<Replica>& replica, Follower& follower, uint64_t index)
      PAWL_REQUIRES(replica->mu);
  // Puts the missing entries that are available on the follower's stream, as far as there is room.
  // Pump starts the reads of the others.
  void CatchUp(const std::shared_ptr<Replica>& replica, Follower& follower)
      PAWL_REQUIRES(replica->mu);
  void StartReads();
  void OnEntriesRead(const LogRead& reading, absl::StatusOr<std::vector<StoredEntry>> entries);
  // False: the follower need no longer go back.
  bool SendGoBack(QueuedGoBack waiting);
  void OnGoBackDone(const Attempt& attempt, uint64_t index, const absl::Status& status);
  // Null if the attempt is not the present one, or the follower is not in `state`. `replica`: the
  // attempt's.
  static Follower* Find(Replica& replica, const Attempt& attempt, Follower::State state)
      PAWL_REQUIRES(replica.mu);
  // Sets kAsked; AskLater, called without locks, then asks for the position. Nullopt: the follower
  // is busy kGoBackTimeout after it first was, and needs a snapshot.
  std::optional<Attempt> PrepareAskLater(const std::shared_ptr<Replica>& replica,
                                         Follower& follower) PAWL_REQUIRES(replica->mu);
  void AskLater(Attempt attempt);
  void RequireSnapshot(Replica& replica, Follower& follower) PAWL_REQUIRES(replica.mu);
  void QueueSnapshot(uint32_t partition) PAWL_EXCLUDES(mu_);
  // Starts the queued go-backs and snapshots, as far as the limit allows.
  void StartTransfers();
  std::optional<QueuedGoBack> TakeGoBack() PAWL_REQUIRES(mu_);
  bool StartInstall(const std::shared_ptr<Replica>& replica);
  void SendNextPiece(const std::shared_ptr<Install>& install);
  void SendPiece(const std::shared_ptr<Install>& install);
  void OnPiece(const std::shared_ptr<Install>& install, const absl::Status& status);
  void OnPieceFailed(const std::shared_ptr<Install>& install, const absl::Status& status);
  // Whether the follower still waits for this snapshot; records its progress. `pushes_wait`, unless
  // null: whether pushes are slowed for it.
  bool IsWanted(const Install& install, MonotonicTime end, bool fails, bool* pushes_wait = nullptr);
  void EndInstall(const std::shared_ptr<Install>& install, const absl::Status& status);
  static void AppendToStream(Follower& follower, ReplicationStream::Entry entry);
  // Sends the held entries.
  static void AppendHeld(Follower& follower);
  // Records that a follower has everything up to `position`. REQUIRES: kStreaming or
  // kChangingStreams.
  void Advance(Replica& replica, Follower& follower, uint64_t position) PAWL_REQUIRES(replica.mu);

  const ReplicatorOptions options_;
  Transport& transport_;
  const Clock& clock_;
  const EntryTail& tail_;
  Owner& owner_;
  DurableLog* log_ = nullptr;
  CatchUpFigures figures_;
  // Numbers the attempts of all followers.
  std::atomic<uint64_t> attempts_{0};

  mutable Mutex mu_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  bool is_limited_ PAWL_GUARDED_BY(mu_) = true;
  absl::btree_map<Server, Peer> peers_ PAWL_GUARDED_BY(mu_);
  // Queued GoBack requests; partitions with a follower that needs a snapshot, each once; and the
  // number of both in progress.
  std::deque<QueuedGoBack> go_back_queue_ PAWL_GUARDED_BY(mu_);
  std::deque<uint32_t> snapshot_queue_ PAWL_GUARDED_BY(mu_);
  size_t transfers_ PAWL_GUARDED_BY(mu_) = 0;
  // A snapshot's pieces are being sent.
  bool sends_snapshot_ PAWL_GUARDED_BY(mu_) = false;
  // Reads to start without a replica's lock.
  std::vector<LogRead> readings_ PAWL_GUARDED_BY(mu_);
  RepairPace pace_ PAWL_GUARDED_BY(mu_);
  // When the rate limit allows the next piece.
  MonotonicTime next_piece_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICATOR_H_
