#include "server/replication/replica_receiver.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/codec.h"
#include "server/replication/change.h"
#include "server/replication/log_entry.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/threads/helper_threads.h"
#include "spdlog/spdlog.h"

namespace pawl {

namespace {

// Whether the replica is what the sender's was at change `log_index` or later: it ends with that
// entry, or with one that the sender has written since. Any other end is void, also of a replica
// that has that entry and then others of a former term.
bool HasFollowed(const Partition& present, const InstallSnapshotRequest& request) {
  const uint64_t last = present.log_index();
  const uint64_t last_term = present.terms().TermOf(last);
  if (last == request.log_index() && last_term == request.log_term() &&
      (last == 0 || last_term != 0))
    return true;
  return last >= request.log_index() && last_term == request.primary_since();
}

}  // namespace

// A request, by partitions: each is worked on by one thread, in the order of its changes.
struct ReplicaReceiver::Received {
  IncomingMessage message;
  ReplicateRequestView request;
  std::vector<ChangeView> changes;
  std::vector<Share> shares;
  // In `shares`, by partition.
  absl::flat_hash_map<uint32_t, size_t> places;
  // No other share is begun.
  std::atomic<bool> failed{false};

  Share& ShareOf(uint32_t partition) {
    const auto [place, is_new] = places.try_emplace(partition, shares.size());
    if (is_new) shares.emplace_back().partition = partition;
    return shares[place->second];
  }
};

void ReplicaReceiver::SetPromise(MonotonicDuration promise) {
  MutexLock lock(mu_);
  promise_ = promise;
}

absl::Status ReplicaReceiver::CheckJob(const ReplicaMap::View& view,
                                       const ReplicationHeader& header) const {
  if (view.epoch == 0) return absl::UnavailableError("this server has no routing table yet");
  if (header.job_id() == view.job_id) return absl::OkStatus();
  return OfAnotherJob(header.job_id());
}

absl::Status ReplicaReceiver::CheckSender(const ReplicaMap::View& view,
                                          const ReplicationHeader& header,
                                          uint32_t partition) const {
  const RoutingTable& routing = view.routing;
  const bool known =
      partition < static_cast<uint32_t>(std::min(routing.primary_size(), routing.replicas_size()));
  const uint32_t primary = known ? routing.primary(static_cast<int>(partition)) : kNoPrimary;
  const bool is_primary =
      primary < static_cast<uint32_t>(routing.servers_size()) &&
      routing.servers(static_cast<int>(primary)).node() == header.node() &&
      routing.servers(static_cast<int>(primary)).incarnation() == header.incarnation();
  // What it sent before it was the primary once more is of another run of changes.
  const bool is_current =
      known && header.epoch() >= routing.replicas(static_cast<int>(partition)).primary_since();
  if (is_primary && is_current && view.Find(partition) != nullptr) return absl::OkStatus();
  const std::string what =
      absl::StrCat(header.node(), " incarnation ", header.incarnation(), " replicates partition ",
                   partition, " by routing epoch ", header.epoch());
  if (header.epoch() > view.epoch) {
    return absl::UnavailableError(
        absl::StrCat(what, ", which has not reached this server, at ", view.epoch));
  }
  return StaleRouting(view, what);
}

absl::Status ReplicaReceiver::CheckTerm(const Replica& replica, uint64_t primary_since) const {
  if (replica.primary_since == primary_since) return absl::OkStatus();
  const std::string what =
      absl::StrCat("partition ", replica.index, " follows its primary since routing epoch ",
                   replica.primary_since, ", not the one since ", primary_since);
  if (replica.primary_since < primary_since) return absl::UnavailableError(what);
  return StaleRouting(*replica_map_.view(), what);
}

absl::Status ReplicaReceiver::ApplyEntry(const ChangeView& change, const ByteView& bytes,
                                         const std::shared_ptr<const void>& owner,
                                         Replica& replica) {
  std::shared_ptr<const TableSchema> table;
  if (change.kind == ChangeView::Kind::kTableCreated) {
    PAWL_ASSIGN_OR_RETURN(table,
                          TableSchema::Create(change.table, replica.partition->options().job_seed));
  }
  PAWL_RETURN_IF_ERROR(ApplyChange(change, owner, std::move(table), *replica.partition));
  if (log_ != nullptr) log_->Append(replica.index, change.index, change.term, bytes, owner);
  return absl::OkStatus();
}

void ReplicaReceiver::Replicate(IncomingMessage message, CallContext context,
                                RequestHandler::Reply reply) {
  auto request = DecodeReplicateRequest(message.bytes);
  if (!request.ok()) return reply(request.status(), OutgoingMessage());
  if (absl::Status status = CheckJob(*replica_map_.view(), request->header); !status.ok()) {
    return reply(std::move(status), OutgoingMessage());
  }
  if (log_ != nullptr) {
    if (absl::Status room = log_->CheckRoom(message.bytes.size()); !room.ok()) {
      return reply(std::move(room), OutgoingMessage());
    }
  }
  const auto received = std::make_shared<Received>();
  received->changes.reserve(request->entries.size());
  for (const ByteView& entry : request->entries) {
    auto change = DecodeLogEntry(entry);
    if (!change.ok()) return reply(change.status(), OutgoingMessage());
    // The table is known before a push of it can come.
    if (change->kind == ChangeView::Kind::kTableCreated) {
      if (const auto table = replica_map_.LearnTable(change->table); !table.ok()) {
        return reply(table.status(), OutgoingMessage());
      }
    }
    received->ShareOf(change->partition).changes.push_back(received->changes.size());
    received->changes.push_back(*std::move(change));
  }
  for (const uint32_t partition : request->asks_position)
    received->ShareOf(partition).is_asked = true;
  received->message = std::move(message);
  received->request = *std::move(request);
  HelperThreads* const helpers = MayTouchAllRows(*received) ? helpers_ : nullptr;
  PAWL_FAILPOINT("replica.apply");
  ShareWork(
      helpers, received->shares.size(),
      [this, received](size_t i) {
        Share& share = received->shares[i];
        if (!received->failed) share.status = Take(*received, share);
        if (!share.status.ok()) received->failed = true;
        return std::vector<std::shared_ptr<WaitingCall>>();
      },
      [this, received, context = std::move(context), reply = std::move(reply)]() mutable {
        Acknowledge(*received, std::move(context), std::move(reply));
      });
}

bool ReplicaReceiver::MayTouchAllRows(const Received& received) const {
  const auto copies = [](const ChangeView& change) {
    return change.kind == ChangeView::Kind::kBestKept ||
           change.kind == ChangeView::Kind::kBestRestored;
  };
  if (std::any_of(received.changes.begin(), received.changes.end(), copies)) return true;
  const auto view = replica_map_.view();
  for (const Share& share : received.shares) {
    const auto ends_step = [&](size_t k) {
      return received.changes[k].kind == ChangeView::Kind::kEndStep;
    };
    if (std::none_of(share.changes.begin(), share.changes.end(), ends_step)) continue;
    if (view->Find(share.partition) == nullptr) continue;
    const std::shared_ptr<Replica>& replica = view->replicas[share.partition];
    MutexLock lock(replica->mu);
    if (replica->partition == nullptr) continue;
    const uint64_t taken = replica->partition->log_index();
    const size_t ends = std::count_if(share.changes.begin(), share.changes.end(), [&](size_t k) {
      return ends_step(k) && received.changes[k].index > taken;
    });
    // An end is mostly one in all partitions: the first one that has any tells of the others.
    return replica->partition->WouldCloseStep(ends);
  }
  return false;
}

absl::Status ReplicaReceiver::Take(const Received& received, Share& share) {
  const auto view = replica_map_.view();
  const ReplicationHeader& header = received.request.header;
  PAWL_RETURN_IF_ERROR(CheckSender(*view, header, share.partition));
  // By this server's routing it may follow the sender in a former term, and another primary in
  // between.
  if (share.is_asked && header.epoch() > view->epoch)
    return RoutingNotReached(*view, header.epoch());
  const std::shared_ptr<Replica>& replica = view->replicas[share.partition];
  share.position.set_partition(share.partition);
  MutexLock lock(replica->mu);
  PAWL_RETURN_IF_ERROR(CheckTerm(
      *replica, view->routing.replicas(static_cast<int>(share.partition)).primary_since()));
  replica->addressed_epoch = std::max<uint64_t>(replica->addressed_epoch, header.epoch());
  // A learner with nothing takes nothing; nor does a replica in a newer role.
  if (replica->partition == nullptr ||
      (replica->role != ReplicaRole::kBackup && replica->role != ReplicaRole::kLearner)) {
    return absl::OkStatus();
  }
  Partition& partition = *replica->partition;
  if (replica->installing) {
    if (share.is_asked) share.position.set_log_index(partition.log_index());
    return absl::OkStatus();
  }
  absl::Status status;
  for (const size_t k : share.changes) {
    const ChangeView& change = received.changes[k];
    if (change.index > partition.log_index() + 1) break;  // a gap; the position says so
    if (change.index <= partition.log_index()) {
      const uint64_t term = partition.terms().TermOf(change.index);
      if (term == 0 || change.term == 0 || term == change.term) continue;
      status = absl::DataLossError(absl::StrCat("change ", change.index, " of partition ",
                                                share.partition, " is of term ", change.term,
                                                ", and of term ", term, " in the replica here"));
      break;
    }
    const ByteView& entry = received.request.entries[k];
    status = ApplyEntry(change, entry, received.message.owner, *replica);
    if (!status.ok()) break;
    tail_.Add(received.message.owner.get(), received.message.bytes.size(),
              {share.partition, change.index, entry, received.message.owner});
  }
  share.position.set_log_index(partition.log_index());
  share.position.set_follows_since(replica->primary_since);
  if (share.is_asked) {
    for (const TermRun& run : partition.terms().runs()) {
      ReplicaPosition::Run& told = *share.position.add_terms();
      told.set_first_index(run.first_index);
      told.set_term(run.term);
    }
    share.position.set_can_go_back(log_ != nullptr);
  }
  share.mark = {replica, partition.log_index(), replica->primary_since};
  return status;
}

void ReplicaReceiver::Acknowledge(Received& received, CallContext context,
                                  RequestHandler::Reply reply) {
  const ReplicationHeader& header = received.request.header;
  ReplicateResponse response;
  std::vector<ChangeMark> marks;
  for (Share& share : received.shares) {
    if (!share.status.ok()) {
      if (!absl::IsFailedPrecondition(share.status) && !absl::IsUnavailable(share.status) &&
          MayLogRefusal()) {
        spdlog::error("{}: {}", header.node(), share.status.ToString());
      }
      return reply(std::move(share.status), OutgoingMessage());
    }
    *response.add_positions() = std::move(share.position);
    if (share.mark.has_value()) marks.push_back(*std::move(share.mark));
  }
  if (header.wants_promise()) {
    MonotonicDuration promise;
    {
      MutexLock lock(mu_);
      promise = promise_;
    }
    if (replica_map_.Promise(header, promise)) {
      response.set_promise_ms(static_cast<uint32_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(promise).count()));
    }
  }
  waiting_.ForDurable(marks, std::move(context),
                      [response, reply = std::move(reply)](absl::Status status) mutable {
                        if (!status.ok()) return reply(std::move(status), OutgoingMessage());
                        PAWL_FAILPOINT("replica.acknowledge");
                        reply(absl::OkStatus(), EncodeSmall(response));
                        PAWL_FAILPOINT("replica.acknowledged");
                      });
}

bool ReplicaReceiver::MayLogRefusal() {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(mu_);
  if (now < next_refusal_logged_) return false;
  next_refusal_logged_ = now + kStreamRefusalLogInterval;
  return true;
}

ReplicaReceiver::Arriving::Arriving(const InstallSnapshotRequest& request,
                                    const PartitionOptions& options)
    : partition(request.partition()),
      node(request.header().node()),
      incarnation(request.header().incarnation()),
      primary_since(request.primary_since()),
      log_index(request.log_index()),
      loader(request.partition(), options) {}

bool ReplicaReceiver::Arriving::IsOf(const InstallSnapshotRequest& request) const {
  return node == request.header().node() && incarnation == request.header().incarnation() &&
         primary_since == request.primary_since() && log_index == request.log_index();
}

ReplicaReceiver::ArrivingSnapshots::iterator ReplicaReceiver::Forget(
    ArrivingSnapshots::iterator snapshot) {
  Arriving& forgotten = *snapshot->second;
  forgotten.forgotten = true;
  bytes_arriving_ -= std::exchange(forgotten.counted_bytes, 0);
  return arriving_.erase(snapshot);
}

void ReplicaReceiver::Forget(const std::shared_ptr<Arriving>& snapshot) {
  MutexLock lock(mu_);
  const auto found = arriving_.find(snapshot->partition);
  if (found != arriving_.end() && found->second == snapshot) Forget(found);
}

void ReplicaReceiver::Tick() {
  const auto view = replica_map_.view();
  const MonotonicTime now = clock_.Now();
  // Their destruction takes long.
  std::vector<std::shared_ptr<Arriving>> forgotten;
  MutexLock lock(mu_);
  for (auto it = arriving_.begin(); it != arriving_.end();) {
    const int partition = static_cast<int>(it->first);
    const bool follows =
        partition < view->routing.replicas_size() && view->Find(it->first) != nullptr &&
        view->routing.replicas(partition).primary_since() == it->second->primary_since;
    if (follows && now - it->second->last_piece < kSnapshotPieceTimeout) {
      ++it;
      continue;
    }
    forgotten.push_back(it->second);
    it = Forget(it);
  }
}

absl::StatusOr<std::shared_ptr<ReplicaReceiver::Arriving>> ReplicaReceiver::Find(
    const InstallSnapshotRequest& request, const PartitionOptions& options) {
  // Their destruction takes long.
  std::vector<std::shared_ptr<Arriving>> forgotten;
  MutexLock lock(mu_);
  const auto forget = [&](ArrivingSnapshots::iterator snapshot) PAWL_REQUIRES(mu_) {
    forgotten.push_back(snapshot->second);
    Forget(snapshot);
  };
  if (request.offset() == 0) {
    if (arriving_.size() >= kMaxSnapshotsArriving && !arriving_.contains(request.partition())) {
      // Most probably of a primary that has died in the middle of it.
      forget(std::min_element(arriving_.begin(), arriving_.end(), [](const auto& a, const auto& b) {
        return a.second->last_piece < b.second->last_piece;
      }));
    }
    if (const auto before = arriving_.find(request.partition()); before != arriving_.end())
      forget(before);
    arriving_[request.partition()] = std::make_shared<Arriving>(request, options);
  }
  const auto found = arriving_.find(request.partition());
  if (found == arriving_.end() || !found->second->IsOf(request)) {
    return absl::OutOfRangeError(absl::StrCat("partition ", request.partition(),
                                              ": the piece at offset ", request.offset(),
                                              " does not follow what has arrived; begin at 0"));
  }
  found->second->last_piece = clock_.Now();
  return found->second;
}

absl::Status ReplicaReceiver::CountBytes(Arriving& snapshot, size_t size) {
  MutexLock lock(mu_);
  if (snapshot.forgotten) {
    return absl::OutOfRangeError(absl::StrCat("partition ", snapshot.partition,
                                              ": another snapshot has been begun; begin at 0"));
  }
  if (snapshot.counted_bytes + size > kMaxSnapshotBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a snapshot of more than ", kMaxSnapshotBytes, " bytes"));
  }
  if (bytes_arriving_ > snapshot.counted_bytes && bytes_arriving_ + size > max_bytes_arriving_) {
    return absl::ResourceExhaustedError(absl::StrCat("snapshots of more than ", max_bytes_arriving_,
                                                     " bytes arrive; send it again later"));
  }
  snapshot.counted_bytes += size;
  bytes_arriving_ += size;
  return absl::OkStatus();
}

absl::Status ReplicaReceiver::TakePiece(const InstallSnapshotRequest& request, Arriving& snapshot) {
  MutexLock lock(snapshot.mu);
  const size_t size = request.data().size();
  const bool came_before = size > 0 && request.offset() == snapshot.last_offset &&
                           request.offset() + size == snapshot.bytes;
  if (!came_before) {
    if (snapshot.is_whole || request.offset() != snapshot.bytes) {
      return absl::OutOfRangeError(absl::StrCat(
          "partition ", request.partition(), ": the piece at offset ", request.offset(),
          " does not follow what has arrived, ", snapshot.bytes, " bytes; begin at 0"));
    }
    PAWL_RETURN_IF_ERROR(CountBytes(snapshot, size));
    snapshot.crc = Crc32c(snapshot.crc, request.data().data(), size);
    snapshot.last_offset = request.offset();
    snapshot.bytes += size;
    PAWL_RETURN_IF_ERROR(snapshot.loader.Append(request.data()));
  }
  if (!request.last() || snapshot.is_whole) return absl::OkStatus();
  if (snapshot.crc != request.crc32c()) {
    return absl::DataLossError(absl::StrCat("the snapshot of partition ", request.partition(),
                                            " has checksum ", snapshot.crc, " and should have ",
                                            request.crc32c()));
  }
  PAWL_ASSIGN_OR_RETURN(Partition loaded, snapshot.loader.Finish());
  if (loaded.log_index() != request.log_index()) {
    return absl::DataLossError(absl::StrCat("the snapshot of partition ", request.partition(),
                                            " is at ", loaded.log_index(), ", not at ",
                                            request.log_index()));
  }
  snapshot.whole = std::make_unique<Partition>(std::move(loaded));
  snapshot.is_whole = true;
  return absl::OkStatus();
}

absl::Status ReplicaReceiver::CheckFollows(const ReplicationHeader& header, uint64_t primary_since,
                                           Replica& replica) const {
  if (replica.role != ReplicaRole::kBackup && replica.role != ReplicaRole::kLearner) {
    return StaleRouting(*replica_map_.view(),
                        absl::StrCat("partition ", replica.index, " is not a backup here"));
  }
  PAWL_RETURN_IF_ERROR(CheckTerm(replica, primary_since));
  replica.addressed_epoch = std::max<uint64_t>(replica.addressed_epoch, header.epoch());
  return absl::OkStatus();
}

std::optional<absl::Status> ReplicaReceiver::CheckInstall(const InstallSnapshotRequest& request,
                                                          Replica& replica) {
  if (absl::Status status = CheckFollows(request.header(), request.primary_since(), replica);
      !status.ok())
    return status;
  if (replica.partition == nullptr || !HasFollowed(*replica.partition, request))
    return std::nullopt;
  return absl::OkStatus();
}

absl::Status ReplicaReceiver::CheckNotInstalling(const Replica& replica) {
  if (!replica.installing) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("another state of partition ", replica.index,
                                             " is being put in place; send it again"));
}

absl::Status ReplicaReceiver::Install(const ReplicaMap::View& view,
                                      const InstallSnapshotRequest& request,
                                      std::unique_ptr<Partition>& partition) {
  for (const auto& table : partition->tables())
    PAWL_RETURN_IF_ERROR(replica_map_.LearnTable(table->spec()).status());
  const std::shared_ptr<Replica>& replica = view.replicas[request.partition()];
  std::unique_ptr<StoredSnapshot> stored;
  if (log_ != nullptr) {
    {
      // Not to write it down in vain.
      MutexLock lock(replica->mu);
      PAWL_RETURN_IF_ERROR(CheckNotInstalling(*replica));
    }
    // No other thread has the partition yet, so it needs no lock.
    PAWL_ASSIGN_OR_RETURN(stored,
                          log_->StoreSnapshot(request.partition(), HoldSnapshot(*partition)));
  }
  // Destroyed without the lock.
  std::unique_ptr<Partition> before;
  MutexLock lock(replica->mu);
  if (auto answer = CheckInstall(request, *replica)) return *std::move(answer);
  PAWL_RETURN_IF_ERROR(CheckNotInstalling(*replica));
  before = std::exchange(replica->partition, std::move(partition));
  tail_.Forget(request.partition());
  if (log_ != nullptr) {
    log_->Replace(request.partition(), std::move(stored));
    replica->durable_index = log_->DurableIndex(request.partition());
  }
  return absl::OkStatus();
}

absl::Status ReplicaReceiver::TakeSnapshot(const ReplicaMap::View& view,
                                           const InstallSnapshotRequest& request) {
  if (request.last()) {
    // The answer to it may have been lost.
    Replica& replica = *view.replicas[request.partition()];
    MutexLock lock(replica.mu);
    if (auto answer = CheckInstall(request, replica)) return *std::move(answer);
  }
  PAWL_ASSIGN_OR_RETURN(const std::shared_ptr<Arriving> snapshot, Find(request, view.options));
  absl::Status status = TakePiece(request, *snapshot);
  if (status.ok() && request.last()) {
    std::unique_ptr<Partition> partition;
    {
      MutexLock lock(snapshot->mu);
      partition = std::move(snapshot->whole);
    }
    if (partition == nullptr) {
      return absl::UnavailableError(absl::StrCat("a snapshot of partition ", request.partition(),
                                                 " is being put in place; send the piece again"));
    }
    status = Install(view, request, partition);
    if (absl::IsUnavailable(status)) {
      // The piece comes again.
      MutexLock lock(snapshot->mu);
      snapshot->whole = std::move(partition);
      return status;
    }
    Forget(snapshot);
  } else if (!status.ok() && !absl::IsOutOfRange(status)) {
    Forget(snapshot);
  }
  return status;
}

// ForDurable answers OK for a replica that is gone as well.
absl::Status ReplicaReceiver::CheckDurable(const ChangeMark& mark) {
  Replica& replica = *mark.replica;
  MutexLock lock(replica.mu);
  if (replica.partition != nullptr && replica.primary_since == mark.primary_since &&
      replica.CommitIndex() >= mark.index) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("partition ", replica.index, " was replaced before it was durable here"));
}

void ReplicaReceiver::InstallSnapshot(IncomingMessage message, CallContext context,
                                      RequestHandler::Reply reply) {
  InstallSnapshotRequest request;
  absl::Status status = DecodeSmall(message.bytes, request);
  const auto view = replica_map_.view();
  if (status.ok()) status = CheckJob(*view, request.header());
  if (status.ok()) status = CheckSender(*view, request.header(), request.partition());
  if (status.ok()) status = TakeSnapshot(*view, request);
  if (!status.ok()) return reply(std::move(status), OutgoingMessage());
  if (!request.last()) return reply(absl::OkStatus(), EncodeSmall(InstallSnapshotResponse()));
  const ChangeMark mark = {view->replicas[request.partition()], request.log_index(),
                           request.primary_since()};
  waiting_.ForDurable({mark}, std::move(context),
                      [mark, reply = std::move(reply)](absl::Status status) mutable {
                        if (status.ok()) status = CheckDurable(mark);
                        // The sender tries the last piece again after UNAVAILABLE alone; after any
                        // other error, all of them.
                        if (absl::IsResourceExhausted(status))
                          status = absl::UnavailableError(status.message());
                        reply(std::move(status), EncodeSmall(InstallSnapshotResponse()));
                      });
}

absl::Status ReplicaReceiver::CheckGoBack(const GoBackRequest& request, Replica& replica) const {
  PAWL_RETURN_IF_ERROR(CheckFollows(request.header(), request.primary_since(), replica));
  if (log_ == nullptr) return absl::NotFoundError("this server has no log");
  const Partition* const present = replica.partition.get();
  if (present != nullptr && present->log_index() == request.last_index() &&
      request.index() < request.last_index() &&
      present->terms().TermOf(request.last_index()) == request.last_term()) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat("partition ", request.partition(),
                                         " does not end with change ", request.last_index(),
                                         " of term ", request.last_term(), " here any more"));
}

absl::Status ReplicaReceiver::BeginGoBack(Replica& replica, const GoBackRequest& request) {
  MutexLock lock(replica.mu);
  PAWL_RETURN_IF_ERROR(CheckGoBack(request, replica));
  PAWL_RETURN_IF_ERROR(CheckNotInstalling(replica));
  replica.installing = true;
  return absl::OkStatus();
}

absl::Status ReplicaReceiver::EndGoBack(Replica& replica, const GoBackRequest& request,
                                        absl::StatusOr<std::unique_ptr<Partition>> read) {
  // Destroyed without the lock.
  std::unique_ptr<Partition> before;
  MutexLock lock(replica.mu);
  replica.installing = false;
  PAWL_RETURN_IF_ERROR(read.status());
  PAWL_RETURN_IF_ERROR(CheckGoBack(request, replica));
  PAWL_RETURN_IF_ERROR(log_->Truncate(request.partition(), request.index()));
  replica.durable_index = log_->DurableIndex(request.partition());
  before = std::exchange(replica.partition, *std::move(read));
  tail_.Forget(request.partition());
  return absl::OkStatus();
}

void ReplicaReceiver::GoBack(IncomingMessage message, CallContext context,
                             RequestHandler::Reply reply) {
  GoBackRequest request;
  absl::Status status = DecodeSmall(message.bytes, request);
  const auto view = replica_map_.view();
  if (status.ok()) status = CheckJob(*view, request.header());
  if (status.ok()) status = CheckSender(*view, request.header(), request.partition());
  if (!status.ok()) return reply(std::move(status), OutgoingMessage());
  const std::shared_ptr<Replica>& replica = view->replicas[request.partition()];
  {
    MutexLock lock(mu_);
    if (reads_back_) {
      return reply(absl::UnavailableError("another partition is being read back; ask again"),
                   OutgoingMessage());
    }
    reads_back_ = true;
  }
  status = BeginGoBack(*replica, request);
  if (!status.ok()) {
    EndReadBack();
    return reply(std::move(status), OutgoingMessage());
  }
  log_->ReadBackThen(
      request.partition(), request.index(),
      [this, replica, request, context = std::move(context),
       reply = std::move(reply)](absl::StatusOr<std::unique_ptr<Partition>> read) mutable {
        absl::Status end = EndGoBack(*replica, request, std::move(read));
        EndReadBack();
        if (!end.ok()) return reply(std::move(end), OutgoingMessage());
        OnWentBack(replica, request, std::move(context), std::move(reply));
      });
}

void ReplicaReceiver::EndReadBack() {
  MutexLock lock(mu_);
  reads_back_ = false;
}

void ReplicaReceiver::OnWentBack(const std::shared_ptr<Replica>& replica,
                                 const GoBackRequest& request, CallContext context,
                                 RequestHandler::Reply reply) {
  spdlog::info(
      "partition {} has gone back to change {}, the last one that its primary has too, from {}",
      request.partition(), request.index(), request.last_index());
  const ChangeMark mark{replica, request.index(), request.primary_since()};
  waiting_.ForDurable({mark}, std::move(context),
                      [reply = std::move(reply)](absl::Status durable) mutable {
                        reply(std::move(durable), EncodeSmall(GoBackResponse()));
                      });
}

}  // namespace pawl
