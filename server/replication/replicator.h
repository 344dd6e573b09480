// The primary's side of replication: streams to the other servers, snapshots for learners, and what
// their answers say.
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
#include "server/replication/change_log.h"
#include "server/replication/entry_tail.h"
#include "server/replication/repair_pace.h"
#include "server/replication/replica.h"
#include "server/replication/replication_stream.h"

namespace pawl {

// Between two servers, besides that on which learners catch up. While one carries a batch the
// others' batches fill.
inline constexpr uint32_t kStreamsPerServer = 2;
// Snapshots that a server sends at one time, those included that it makes others read back from
// their logs (GoBack).
inline constexpr size_t kMaxSnapshotsUnderWay = 2;
inline constexpr size_t kSnapshotPieceBytes = size_t{512} << 10;
// Of the last one, before whose answer the whole is loaded and written down, the TransferTime of
// the whole besides.
inline constexpr std::chrono::milliseconds kSnapshotPieceDeadline{5000};
// After a piece that did not arrive; doubled with each try that follows, up to the second. After
// the third it is given up, and with it the snapshot: the follower is silent, and what is kept
// behind the snapshot takes memory.
inline constexpr std::chrono::milliseconds kSnapshotRetryInterval{50};
inline constexpr std::chrono::milliseconds kMaxPieceRetryInterval{400};
inline constexpr std::chrono::milliseconds kPieceTriesTimeout{8000};
// Entries that a follower lacks are read from the log in pieces of so many bytes. One is on its
// stream and one is being read.
inline constexpr size_t kCatchUpChunkBytes = kMaxStreamRequestBytes;
// A read that takes longer is given up, and its follower gets a snapshot, which is made from
// memory: the disk does not answer. The second one, where it is known to fail.
inline constexpr std::chrono::seconds kLogReadTimeout{30};
inline constexpr std::chrono::seconds kFailingLogReadTimeout{2};
// After so many tries to go back a follower gets a snapshot.
inline constexpr uint32_t kMaxGoBacks = 3;
// A follower that was not reached, or that reads another replica back, is asked again after this.
inline constexpr std::chrono::milliseconds kGoBackRetryInterval{200};
// After a snapshot that was given up the first interval is waited, and twice as long after each one
// that follows, up to this.
inline constexpr std::chrono::milliseconds kMaxSnapshotRetryInterval{5000};
// Of one server no more often it is logged what it refuses.
inline constexpr std::chrono::seconds kStreamRefusalLogInterval{1};
// For so long a snapshot that did not arrive says that the server is silent.
inline constexpr std::chrono::seconds kFailedInstallCounts{1};
// How often a silent scheduler makes a primary ask its backups for promises.
inline constexpr std::chrono::milliseconds kPromiseInterval{100};

struct ReplicatorOptions {
  // Of all snapshots together, at most. Below it the rate follows what is to spare: RepairPace.
  uint64_t repair_bytes_per_s = uint64_t{1} << 30;
  // Of one piece of a snapshot.
  size_t snapshot_piece_bytes = kSnapshotPieceBytes;
  LearnerLimits learners;
};

// How followers have got what they lacked, since the process began.
struct CatchUpFigures {
  // Followers that lacked nothing, or only entries that were in memory; that got some from the log;
  // that went back to the last entry that they shared before; and that got a snapshot.
  std::atomic<uint64_t> by_tail{0};
  std::atomic<uint64_t> by_log{0};
  std::atomic<uint64_t> by_going_back{0};
  std::atomic<uint64_t> by_snapshot{0};
  // Bytes sent of snapshots, and of entries that were written before the follower was asked.
  std::atomic<uint64_t> snapshot_bytes{0};
  std::atomic<uint64_t> entry_bytes{0};
};

// Thread-safe; owns no thread. The transport and the log must have let go of all calls before this
// is destroyed. Locks: a replica's, then this one's, then a stream's.
class Replicator {
 public:
  struct Events {
    // Who sends, by which epoch.
    std::function<ReplicationHeader()> header;
    // A receiver refused and gave a newer routing.
    std::function<void(const RoutingTable&)> routing;
    // Null if it is not hosted.
    std::function<std::shared_ptr<Replica>(uint32_t partition)> find;
    // A replica may have committed more. Without locks.
    std::function<void(const std::shared_ptr<Replica>&)> advanced;
  };

  // `tail`: the last entries of this server's replicas. Outlives this.
  Replicator(const ReplicatorOptions& options, Transport& transport, const Clock& clock,
             const EntryTail& tail, Events events);

  // Before the first routing; without it a follower that lacks more than the tail has gets a
  // snapshot.
  void SetLog(ChangeLog* log) { log_ = log; }

  // The followers that a primary has by the routing; those that it had already go on where they
  // are, and others are asked where they are. `is_new`: the partition has never been changed, so
  // its backups have everything. (A learner may not even have an empty partition.)
  void SetFollowers(Replica& replica, const RoutingTable& routing, bool is_new)
      PAWL_REQUIRES(replica.mu);
  // Lanes to lives of servers that the routing does not name are closed, and what the transport
  // keeps for addresses that it does not name is given up.
  void ForgetServersNotIn(const RoutingTable& routing);

  // Sends what waits on the streams. Without locks; after entries were appended.
  void PumpStreams();
  // The same, and begins snapshots.
  void Pump();
  // `asks`: the scheduler is silent, and promises are wanted.
  void Tick(bool asks);

  // Until when, by LeaseNow, the server has promised not to take over; MonotonicTime::min() if it
  // has not.
  MonotonicTime PromisedUntil(const std::string& node, uint64_t incarnation) const;

  // Servers that have taken nothing for that long although there is something to take, or take it
  // too slowly.
  std::vector<SilentServer> SilentFor(MonotonicDuration duration) const;

  // Snapshots take what they can get from now on: this server has little time left.
  void LiftLimit();
  const CatchUpFigures& figures() const { return figures_; }
  // Runs `action` after `delay`.
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
    transport_.After(delay, std::move(action));
  }
  // Nothing is sent or begun from now on; calls under way end by themselves.
  void Close();

  // Tells of the replica's learners that have caught up, and begins anew with those that fell too
  // far behind or for which the log is read for too long; `request` says whether the disk fails.
  // Does nothing while somebody holds the replica's lock. Nobody has caught up while the primary
  // before may still serve by this server's promise: a learner has given none, and could be made
  // the primary and not wait for that.
  void AddCaughtUp(Replica& replica, HeartbeatRequest& request);

 private:
  using Server = std::pair<std::string, uint64_t>;  // node, incarnation
  struct Peer {
    std::vector<std::shared_ptr<ReplicationStream>> streams;
    // For learners until they have caught up: nobody who waits for a backup is to wait for what
    // they lack.
    std::shared_ptr<ReplicationStream> catch_up;
    MonotonicTime promised_until = MonotonicTime::min();
    // Of snapshots that did not arrive, since the last one that did: when the piece was sent for
    // which the first was given up, and when the last was. (The pieces before it were answered: a
    // long transfer is no silence.)
    std::optional<MonotonicTime> installs_fail_since;
    MonotonicTime install_failed_at = MonotonicTime::min();
    MonotonicTime next_refusal_logged = MonotonicTime::min();
    // One of its replicas does; it reads back one at a time.
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
  // A request to go back, to be sent in its turn.
  struct WaitingGoBack {
    Attempt attempt;
    std::string address;
    GoBackRequest request;
  };
  // What is to be done after an answer, without locks.
  struct AfterAnswer {
    bool changes_streams = false;
    // Pushes waited for it.
    bool is_of_backup = false;
    std::vector<Attempt> asks_later;
  };
  // Entries of the log that a follower lacks.
  struct Reading {
    Attempt attempt;
    uint64_t first = 0;
    uint64_t last = 0;
  };

  Peer& PeerAt(const ServerAddress& address) PAWL_REQUIRES(mu_);
  std::shared_ptr<ReplicationStream> NewStream(const ServerAddress& address) PAWL_REQUIRES(mu_);
  std::vector<std::shared_ptr<ReplicationStream>> AllStreams() const PAWL_EXCLUDES(mu_);
  void OnAnswer(const Server& server, const ReplicateResponse& response,
                const std::vector<uint32_t>& asked, MonotonicTime sent);
  void TakePosition(const Server& server, const ReplicaPosition& position, bool was_asked,
                    AfterAnswer& after);
  // A follower that was asked is at `position`: decides how it gets what it lacks.
  void Match(const std::shared_ptr<Replica>& replica, Follower& follower,
             const ReplicaPosition& position, AfterAnswer& after) PAWL_REQUIRES(replica->mu);
  // Makes it catch up from `index` on, the last entry that it shares with the primary.
  void BeginCatchUp(const std::shared_ptr<Replica>& replica, Follower& follower, uint64_t index)
      PAWL_REQUIRES(replica->mu);
  // Puts all that it lacks on its stream, or what of it is there and has room. What is to be read
  // is begun by Pump.
  void CatchUp(const std::shared_ptr<Replica>& replica, Follower& follower)
      PAWL_REQUIRES(replica->mu);
  void BeginReads();
  void OnEntriesRead(const Reading& reading, absl::StatusOr<std::vector<StoredEntry>> entries);
  // False: the follower is not to go back any more.
  bool SendGoBack(WaitingGoBack waiting);
  void OnWentBack(const Attempt& attempt, uint64_t index, const absl::Status& status);
  // Null if the attempt is not the present one any more, or the follower is not in `state`.
  // `replica`: the attempt's.
  static Follower* Find(Replica& replica, const Attempt& attempt, Follower::State state)
      PAWL_REQUIRES(replica.mu);
  void OnFailure(const Server& server, const absl::Status& status);
  // The follower gets kAsked, and is asked where it is by AskLater, which is called without locks.
  Attempt WillAskLater(const std::shared_ptr<Replica>& replica, Follower& follower)
      PAWL_REQUIRES(replica->mu);
  void AskLater(Attempt attempt);
  void NeedsSnapshot(Replica& replica, Follower& follower) PAWL_REQUIRES(replica.mu);
  void WantSnapshot(uint32_t partition) PAWL_EXCLUDES(mu_);
  // Begins to send what waits for its turn.
  void BeginTransfers();
  std::optional<WaitingGoBack> TakeGoBack() PAWL_REQUIRES(mu_);
  bool BeginInstall(const std::shared_ptr<Replica>& replica);
  void SendNextPiece(const std::shared_ptr<Install>& install);
  void SendPiece(const std::shared_ptr<Install>& install);
  void OnPiece(const std::shared_ptr<Install>& install, const absl::Status& status);
  void OnPieceFailed(const std::shared_ptr<Install>& install, const absl::Status& status);
  // Whether the follower still waits for this snapshot; notes how it goes. `pushes_wait`, unless
  // null: whether pushes are slowed for it.
  bool IsWanted(const Install& install, MonotonicTime end, bool fails, bool* pushes_wait = nullptr);
  void EndInstall(const std::shared_ptr<Install>& install, const absl::Status& status);
  static void AppendToStream(Follower& follower, ReplicationStream::Entry entry);
  // Sends what was kept for it.
  static void AppendHeld(Follower& follower);
  // Notes that a follower has everything up to `position`. REQUIRES: it streams, or changes
  // streams.
  void Advance(Replica& replica, Follower& follower, uint64_t position) PAWL_REQUIRES(replica.mu);

  const ReplicatorOptions options_;
  Transport& transport_;
  const Clock& clock_;
  const EntryTail& tail_;
  const Events events_;
  ChangeLog* log_ = nullptr;
  CatchUpFigures figures_;
  // Numbers attempts of all followers.
  std::atomic<uint64_t> attempts_{0};

  mutable Mutex mu_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  bool is_limited_ PAWL_GUARDED_BY(mu_) = true;
  absl::btree_map<Server, Peer> peers_ PAWL_GUARDED_BY(mu_);
  // Followers that are to go back, and partitions of which one needs a snapshot, each once; and how
  // many are under way.
  std::deque<WaitingGoBack> going_back_ PAWL_GUARDED_BY(mu_);
  std::deque<uint32_t> wanting_ PAWL_GUARDED_BY(mu_);
  size_t transfers_ PAWL_GUARDED_BY(mu_) = 0;
  // To be begun without a replica's lock.
  std::vector<Reading> readings_ PAWL_GUARDED_BY(mu_);
  RepairPace pace_ PAWL_GUARDED_BY(mu_);
  // When the bytes sent so far are paid for.
  MonotonicTime next_piece_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICATOR_H_
