#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/codec.h"
#include "server/replication/backpressure.h"
#include "server/replication/log_entry.h"
#include "server/replication/replica_receiver.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// Whether the replica equals the sender's at change `log_index` or later: it ends with that entry,
// or with one that the sender has written since. Any other end is void, even if the replica has
// that entry followed by entries of an earlier term.
bool HasFollowed(const Partition& present, const InstallSnapshotRequest& request) {
  const uint64_t last = present.log_index();
  const uint64_t last_term = present.terms().TermOf(last);
  if (last == request.log_index() && last_term == request.log_term() &&
      (last == 0 || last_term != 0))
    return true;
  return last >= request.log_index() && last_term == request.primary_since();
}

}  // namespace

ReplicaReceiver::PartialSnapshot::PartialSnapshot(const InstallSnapshotRequest& request,
                                                  const PartitionOptions& options)
    : partition(request.partition()),
      node(request.header().node()),
      incarnation(request.header().incarnation()),
      primary_since(request.primary_since()),
      log_index(request.log_index()),
      loader(request.partition(), options) {}

bool ReplicaReceiver::PartialSnapshot::IsOf(const InstallSnapshotRequest& request) const {
  return node == request.header().node() && incarnation == request.header().incarnation() &&
         primary_since == request.primary_since() && log_index == request.log_index();
}

ReplicaReceiver::PartialSnapshots::iterator ReplicaReceiver::Discard(
    PartialSnapshots::iterator snapshot) {
  PartialSnapshot& partial = *snapshot->second;
  partial.discarded = true;
  if (!partial.is_stored) bytes_arriving_ -= std::exchange(partial.counted_bytes, 0);
  return partial_snapshots_.erase(snapshot);
}

void ReplicaReceiver::Discard(const std::shared_ptr<PartialSnapshot>& snapshot) {
  MutexLock lock(mu_);
  const auto found = partial_snapshots_.find(snapshot->partition);
  if (found != partial_snapshots_.end() && found->second == snapshot) Discard(found);
}

void ReplicaReceiver::Tick() {
  const auto view = replica_map_.view();
  const MonotonicTime now = clock_.Now();
  // Destroyed without the lock, since that takes long.
  std::vector<std::shared_ptr<PartialSnapshot>> discarded;
  MutexLock lock(mu_);
  for (auto it = partial_snapshots_.begin(); it != partial_snapshots_.end();) {
    const int partition = static_cast<int>(it->first);
    const bool follows =
        partition < view->routing.replicas_size() && view->Find(it->first) != nullptr &&
        view->routing.replicas(partition).primary_since() == it->second->primary_since;
    if (follows && now - it->second->last_piece < kSnapshotPieceTimeout) {
      ++it;
      continue;
    }
    discarded.push_back(it->second);
    it = Discard(it);
  }
}

absl::StatusOr<std::shared_ptr<ReplicaReceiver::PartialSnapshot>> ReplicaReceiver::Find(
    const InstallSnapshotRequest& request, const PartitionOptions& options) {
  // Destroyed without the lock, since that takes long.
  std::shared_ptr<PartialSnapshot> discarded;
  MutexLock lock(mu_);
  if (request.offset() == 0) {
    if (const auto before = partial_snapshots_.find(request.partition());
        before != partial_snapshots_.end()) {
      discarded = before->second;
      Discard(before);
    }
    partial_snapshots_[request.partition()] = std::make_shared<PartialSnapshot>(request, options);
  }
  const auto found = partial_snapshots_.find(request.partition());
  if (found == partial_snapshots_.end() || !found->second->IsOf(request)) {
    return absl::OutOfRangeError(absl::StrCat("partition ", request.partition(),
                                              ": the piece at offset ", request.offset(),
                                              " does not follow the last one; start at 0"));
  }
  found->second->last_piece = clock_.Now();
  return found->second;
}

absl::Status ReplicaReceiver::CountBytes(PartialSnapshot& snapshot, size_t size) {
  MutexLock lock(mu_);
  if (snapshot.discarded) {
    return absl::OutOfRangeError(absl::StrCat("partition ", snapshot.partition,
                                              ": another snapshot was started; start at 0"));
  }
  if (snapshot.counted_bytes + size > kMaxSnapshotBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the snapshot has more than ", kMaxSnapshotBytes, " bytes"));
  }
  if (bytes_arriving_ > snapshot.counted_bytes && bytes_arriving_ + size > max_bytes_arriving_) {
    return WithPushback(absl::ResourceExhaustedError(absl::StrCat(
        "snapshots with more than ", max_bytes_arriving_, " bytes are arriving; retry later")));
  }
  snapshot.counted_bytes += size;
  bytes_arriving_ += size;
  return absl::OkStatus();
}

absl::Status ReplicaReceiver::DecodePiece(const InstallSnapshotRequest& request,
                                          const ByteView& data, PartialSnapshot& snapshot) {
  MutexLock lock(snapshot.mu);
  const size_t size = data.size();
  const bool is_repeated = size > 0 && request.offset() == snapshot.last_offset &&
                           request.offset() + size == snapshot.bytes;
  if (!is_repeated) {
    if (snapshot.is_complete || request.offset() != snapshot.bytes) {
      return absl::OutOfRangeError(absl::StrCat(
          "partition ", request.partition(), ": the piece at offset ", request.offset(),
          " does not follow the ", snapshot.bytes, " bytes that have arrived; start at 0"));
    }
    PAWL_RETURN_IF_ERROR(CountBytes(snapshot, size));
    snapshot.last_offset = request.offset();
    snapshot.bytes += size;
    for (const ByteView::Fragment& fragment : data.fragments()) {
      snapshot.crc = Crc32c(snapshot.crc, fragment.data(), fragment.size());
      PAWL_RETURN_IF_ERROR(snapshot.loader.Append({fragment.data(), fragment.size()}));
    }
  }
  if (!request.last() || snapshot.is_complete) return absl::OkStatus();
  if (snapshot.crc != request.crc32c()) {
    return absl::DataLossError(absl::StrCat("the snapshot of partition ", request.partition(),
                                            " has checksum ", snapshot.crc, ", not ",
                                            request.crc32c()));
  }
  PAWL_ASSIGN_OR_RETURN(Partition loaded, snapshot.loader.Finish());
  if (loaded.log_index() != request.log_index()) {
    return absl::DataLossError(absl::StrCat("the snapshot of partition ", request.partition(),
                                            " is at ", loaded.log_index(), ", not at ",
                                            request.log_index()));
  }
  snapshot.loaded = std::make_unique<Partition>(std::move(loaded));
  snapshot.is_complete = true;
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
  return absl::UnavailableError(
      absl::StrCat("another state of partition ", replica.index, " is being installed; retry"));
}

absl::StatusOr<std::shared_ptr<ReplicaReceiver::PartialSnapshot>> ReplicaReceiver::ReceivePiece(
    const ReplicaMap::View& view, const InstallSnapshotRequest& request, const ByteView& data) {
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<PartialSnapshot> snapshot, Find(request, view.options));
  absl::Status status = DecodePiece(request, data, *snapshot);
  if (status.ok()) return snapshot;
  if (!absl::IsOutOfRange(status)) Discard(snapshot);
  return status;
}

absl::Status ReplicaReceiver::BeginStore(PartialSnapshot& snapshot) {
  MutexLock lock(mu_);
  if (!storing_.insert(snapshot.partition).second) {
    return absl::UnavailableError(absl::StrCat("another snapshot of partition ", snapshot.partition,
                                               " is being stored; retry"));
  }
  snapshot.is_stored = true;
  return absl::OkStatus();
}

void ReplicaReceiver::EndStore(PartialSnapshot& snapshot) {
  MutexLock lock(mu_);
  storing_.erase(snapshot.partition);
  snapshot.is_stored = false;
  if (snapshot.discarded) bytes_arriving_ -= std::exchange(snapshot.counted_bytes, 0);
}

void ReplicaReceiver::Install(std::unique_ptr<Installation> install) {
  const uint32_t partition = install->request.partition();
  {
    MutexLock lock(install->snapshot->mu);
    install->partition = std::move(install->snapshot->loaded);
  }
  if (install->partition == nullptr) {
    return install->reply(
        absl::UnavailableError(absl::StrCat("a snapshot of partition ", partition,
                                            " is being installed; send the piece again")),
        OutgoingMessage());
  }
  for (const auto& table : install->partition->tables()) {
    if (absl::Status status = replica_map_.LearnTable(table->spec()).status(); !status.ok())
      return EndInstall(std::move(install), std::move(status));
  }
  if (log_ == nullptr) return EndInstall(std::move(install), nullptr);
  absl::Status status;
  {
    // Avoids writing a snapshot that cannot be installed.
    Replica& replica = *install->replica;
    MutexLock lock(replica.mu);
    status = CheckNotInstalling(replica);
  }
  if (status.ok()) status = BeginStore(*install->snapshot);
  if (!status.ok()) return EndInstall(std::move(install), std::move(status));
  // No other thread has the partition yet, so it needs no lock.
  HeldSnapshot held = HoldSnapshot(*install->partition);
  log_->StoreSnapshotAsync(partition, std::move(held),
                           [this, install = std::move(install)](
                               absl::StatusOr<std::unique_ptr<StoredSnapshot>> stored) mutable {
                             const std::shared_ptr<PartialSnapshot> snapshot = install->snapshot;
                             EndInstall(std::move(install), std::move(stored));
                             EndStore(*snapshot);
                           });
}

void ReplicaReceiver::EndInstall(std::unique_ptr<Installation> install,
                                 absl::StatusOr<std::unique_ptr<StoredSnapshot>> stored) {
  absl::Status status = stored.status();
  if (status.ok()) status = ReplaceState(*install, *std::move(stored));
  if (absl::IsUnavailable(status)) {
    // The sender repeats the piece.
    MutexLock lock(install->snapshot->mu);
    install->snapshot->loaded = std::move(install->partition);
  } else {
    Discard(install->snapshot);
  }
  AnswerInstall(install->replica, install->request, std::move(status), std::move(install->context),
                std::move(install->reply));
}

absl::Status ReplicaReceiver::ReplaceState(Installation& install,
                                           std::unique_ptr<StoredSnapshot> stored) {
  Replica& replica = *install.replica;
  // Destroyed without the lock.
  std::unique_ptr<Partition> before;
  MutexLock lock(replica.mu);
  if (auto answer = CheckInstall(install.request, replica)) return *std::move(answer);
  PAWL_RETURN_IF_ERROR(CheckNotInstalling(replica));
  before = std::exchange(replica.partition, std::move(install.partition));
  tail_.Forget(replica.index);
  if (log_ != nullptr) {
    log_->Replace(replica.index, std::move(stored));
    replica.durable_index = log_->DurableIndex(replica.index);
  }
  return absl::OkStatus();
}

// ForDurable also answers OK for a replica that has no data any more.
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
  ByteView data;
  absl::Status status = DecodeInstallSnapshotRequest(message.bytes, request, data);
  const auto view = replica_map_.view();
  if (status.ok()) status = CheckJob(*view, request.header());
  if (status.ok()) status = CheckSender(*view, request.header(), request.partition());
  if (!status.ok()) return reply(std::move(status), OutgoingMessage());
  const std::shared_ptr<Replica>& replica = view->replicas[request.partition()];
  if (request.last()) {
    // The answer to an earlier copy of this piece may have been lost.
    std::optional<absl::Status> answer;
    {
      MutexLock lock(replica->mu);
      answer = CheckInstall(request, *replica);
    }
    if (answer.has_value()) {
      return AnswerInstall(replica, request, *std::move(answer), std::move(context),
                           std::move(reply));
    }
  }
  auto snapshot = ReceivePiece(*view, request, data);
  if (!snapshot.ok()) return reply(snapshot.status(), OutgoingMessage());
  if (!request.last()) return reply(absl::OkStatus(), EncodeSmall(InstallSnapshotResponse()));
  Install(std::make_unique<Installation>(Installation{
      replica, std::move(request), *std::move(snapshot), std::move(context), std::move(reply)}));
}

void ReplicaReceiver::AnswerInstall(const std::shared_ptr<Replica>& replica,
                                    const InstallSnapshotRequest& request, absl::Status status,
                                    CallContext context, RequestHandler::Reply reply) {
  if (!status.ok()) return reply(std::move(status), OutgoingMessage());
  const ChangeMark mark = {replica, request.log_index(), request.primary_since()};
  waiting_.ForDurable({mark}, std::move(context),
                      [mark, reply = std::move(reply)](absl::Status status) mutable {
                        if (status.ok()) status = CheckDurable(mark);
                        // The sender repeats the last piece only after UNAVAILABLE; after any other
                        // error it sends all pieces again.
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
                                         " no longer ends with change ", request.last_index(),
                                         " of term ", request.last_term(), " here"));
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
  if (absl::Status status = CheckGoBack(request, replica); !status.ok()) {
    log_->ForgetReadBack(request.partition());
    return status;
  }
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
      return reply(absl::UnavailableError("another partition is being read back; retry"),
                   OutgoingMessage());
    }
    reads_back_ = true;
  }
  status = BeginGoBack(*replica, request);
  if (!status.ok()) {
    EndReadBack();
    return reply(std::move(status), OutgoingMessage());
  }
  log_->ReadBackAsync(
      request.partition(), request.index(),
      [this, replica, request, context = std::move(context),
       reply = std::move(reply)](absl::StatusOr<std::unique_ptr<Partition>> read) mutable {
        absl::Status end = EndGoBack(*replica, request, std::move(read));
        EndReadBack();
        if (!end.ok()) return reply(std::move(end), OutgoingMessage());
        OnGoBackDone(replica, request, std::move(context), std::move(reply));
      });
}

void ReplicaReceiver::EndReadBack() {
  MutexLock lock(mu_);
  reads_back_ = false;
}

void ReplicaReceiver::OnGoBackDone(const std::shared_ptr<Replica>& replica,
                                   const GoBackRequest& request, CallContext context,
                                   RequestHandler::Reply reply) {
  spdlog::info(
      "partition {} went back to change {}, the last one that it shares with its primary, from {}",
      request.partition(), request.index(), request.last_index());
  const ChangeMark mark{replica, request.index(), request.primary_since()};
  waiting_.ForDurable({mark}, std::move(context),
                      [reply = std::move(reply)](absl::Status durable) mutable {
                        reply(std::move(durable), EncodeSmall(GoBackResponse()));
                      });
}

}  // namespace pawl
