#include "server/replication/replica_receiver.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/codec.h"
#include "server/replication/change.h"
#include "server/replication/log_entry.h"
#include "server/threads/helper_threads.h"
#include "spdlog/spdlog.h"

namespace pawl {

// A request, split by partition. One thread works on each partition, in the order of its changes.
struct ReplicaReceiver::Received {
  IncomingMessage message;
  ReplicateRequestView request;
  std::vector<ChangeView> changes;
  std::vector<PartitionChanges> by_partition;
  // Indices into `by_partition`, by partition.
  absl::flat_hash_map<uint32_t, size_t> places;
  // No further share is started.
  std::atomic<bool> failed{false};

  PartitionChanges& ChangesOf(uint32_t partition) {
    const auto [place, is_new] = places.try_emplace(partition, by_partition.size());
    if (is_new) by_partition.emplace_back().partition = partition;
    return by_partition[place->second];
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
  return WrongJob(header.job_id());
}

absl::Status ReplicaReceiver::CheckSender(const ReplicaMap::View& view,
                                          const ReplicationHeader& header,
                                          uint32_t partition) const {
  const RoutingTable& routing = view.routing;
  const bool known =
      partition < static_cast<uint32_t>(std::min(routing.primary_size(), routing.replicas_size()));
  uint32_t primary = known ? routing.primary(static_cast<int>(partition)) : kNoPrimary;
  // A primary that hands over still sends what it has.
  if (known && routing.replicas(static_cast<int>(partition)).has_yielding())
    primary = routing.replicas(static_cast<int>(partition)).yielding();
  const bool is_primary =
      primary < static_cast<uint32_t>(routing.servers_size()) &&
      routing.servers(static_cast<int>(primary)).node() == header.node() &&
      routing.servers(static_cast<int>(primary)).incarnation() == header.incarnation();
  // A request that the primary sent before it became primary again belongs to another history.
  const bool is_current =
      known && header.epoch() >= routing.replicas(static_cast<int>(partition)).primary_since();
  if (is_primary && is_current && view.Find(partition) != nullptr) return absl::OkStatus();
  const std::string what =
      absl::StrCat(header.node(), " incarnation ", header.incarnation(), " replicates partition ",
                   partition, " by routing epoch ", header.epoch());
  if (header.epoch() > view.epoch) {
    return absl::UnavailableError(
        absl::StrCat(what, ", which has not arrived at this server, which is at ", view.epoch));
  }
  return StaleRouting(view, what);
}

absl::Status ReplicaReceiver::CheckTerm(const Replica& replica, uint64_t primary_since) const {
  if (replica.primary_since == primary_since) return absl::OkStatus();
  const std::string what =
      absl::StrCat("partition ", replica.index, " follows the primary of term ",
                   replica.primary_since, ", not of term ", primary_since);
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
    // A table must be known before a push to it can arrive.
    if (change->kind == ChangeView::Kind::kTableCreated) {
      if (const auto table = replica_map_.LearnTable(change->table); !table.ok()) {
        return reply(table.status(), OutgoingMessage());
      }
    }
    received->ChangesOf(change->partition).changes.push_back(received->changes.size());
    received->changes.push_back(*std::move(change));
  }
  for (const uint32_t partition : request->asks_position)
    received->ChangesOf(partition).is_asked = true;
  received->message = std::move(message);
  received->request = *std::move(request);
  HelperThreads* const helpers = MayTouchAllRows(*received) ? helpers_ : nullptr;
  PAWL_FAILPOINT("replica.apply");
  ShareWork(
      helpers, received->by_partition.size(),
      [this, received](size_t i) {
        PartitionChanges& part = received->by_partition[i];
        if (!received->failed) part.status = ApplyChanges(*received, part);
        if (!part.status.ok()) received->failed = true;
        return std::vector<std::shared_ptr<WaitingCall>>();
      },
      [this, received, context = std::move(context), reply = std::move(reply)]() mutable {
        if (log_ != nullptr) log_->WriteQueued();
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
  for (const PartitionChanges& part : received.by_partition) {
    const auto closes_step = [&](size_t k) { return received.changes[k].close_scale.has_value(); };
    const auto ends_step = [&](size_t k) {
      return received.changes[k].kind == ChangeView::Kind::kEndStep && !closes_step(k);
    };
    if (std::any_of(part.changes.begin(), part.changes.end(), closes_step)) return true;
    if (std::none_of(part.changes.begin(), part.changes.end(), ends_step)) continue;
    if (view->Find(part.partition) == nullptr) continue;
    const std::shared_ptr<Replica>& replica = view->replicas[part.partition];
    MutexLock lock(replica->mu);
    if (replica->partition == nullptr) continue;
    const uint64_t taken = replica->partition->log_index();
    const size_t ends = std::count_if(part.changes.begin(), part.changes.end(), [&](size_t k) {
      return ends_step(k) && received.changes[k].index > taken;
    });
    // A step mostly ends in all partitions: the first partition with an end stands for the others.
    return replica->partition->WouldCompleteStep(ends);
  }
  return false;
}

absl::Status ReplicaReceiver::ApplyChanges(const Received& received, PartitionChanges& part) {
  const auto view = replica_map_.view();
  const ReplicationHeader& header = received.request.header;
  PAWL_RETURN_IF_ERROR(CheckSender(*view, header, part.partition));
  // By this server's routing it may follow the sender in an earlier term, with another primary in
  // between.
  if (part.is_asked && header.epoch() > view->epoch)
    return RoutingNotArrived(*view, header.epoch());
  const std::shared_ptr<Replica>& replica = view->replicas[part.partition];
  part.position.set_partition(part.partition);
  MutexLock lock(replica->mu);
  PAWL_RETURN_IF_ERROR(CheckTerm(
      *replica, view->routing.replicas(static_cast<int>(part.partition)).primary_since()));
  replica->addressed_epoch = std::max<uint64_t>(replica->addressed_epoch, header.epoch());
  // A learner without data accepts nothing; nor does a replica in a newer role.
  if (replica->partition == nullptr ||
      (replica->role != ReplicaRole::kBackup && replica->role != ReplicaRole::kLearner)) {
    return absl::OkStatus();
  }
  Partition& partition = *replica->partition;
  if (replica->installing) {
    if (part.is_asked) part.position.set_log_index(partition.log_index());
    return absl::OkStatus();
  }
  for (const size_t k : part.changes) {
    const ChangeView& change = received.changes[k];
    if (change.index > partition.log_index() + 1) break;  // a gap, which the position reports
    if (change.index <= partition.log_index()) {
      const uint64_t term = partition.terms().TermOf(change.index);
      if (term == 0 || change.term == 0 || term == change.term) continue;
      part.divergence = absl::DataLossError(
          absl::StrCat("change ", change.index, " of partition ", part.partition, " has term ",
                       change.term, ", but term ", term, " in the replica here"));
      break;
    }
    const ByteView& entry = received.request.entries[k];
    const absl::Status status = ApplyEntry(change, entry, received.message.owner, *replica);
    if (absl::IsDataLoss(status)) part.divergence = status;
    if (!part.divergence.ok()) break;
    PAWL_RETURN_IF_ERROR(status);
    tail_.Add(received.message.owner.get(), received.message.bytes.size(),
              {part.partition, change.index, entry, received.message.owner});
  }
  part.position.set_log_index(partition.log_index());
  part.position.set_follows_since(replica->primary_since);
  part.position.set_has_diverged(!part.divergence.ok());
  if (part.is_asked) {
    for (const TermRun& run : partition.terms().runs()) {
      ReplicaPosition::Run& reported = *part.position.add_terms();
      reported.set_first_index(run.first_index);
      reported.set_term(run.term);
    }
    part.position.set_can_go_back(log_ != nullptr);
  }
  part.mark = {replica, partition.log_index(), replica->primary_since};
  return absl::OkStatus();
}

void ReplicaReceiver::Acknowledge(Received& received, CallContext context,
                                  RequestHandler::Reply reply) {
  const ReplicationHeader& header = received.request.header;
  ReplicateResponse response;
  std::vector<ChangeMark> marks;
  for (PartitionChanges& part : received.by_partition) {
    if (!part.status.ok()) {
      if (!absl::IsFailedPrecondition(part.status) && !absl::IsUnavailable(part.status) &&
          ShouldLogRefusal()) {
        spdlog::error("{}: {}", header.node(), part.status.ToString());
      }
      return reply(std::move(part.status), OutgoingMessage());
    }
    if (!part.divergence.ok() && ShouldLogRefusal())
      spdlog::error("{}: {}", header.node(), part.divergence.ToString());
    *response.add_positions() = std::move(part.position);
    if (part.mark.has_value()) marks.push_back(*std::move(part.mark));
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

bool ReplicaReceiver::ShouldLogRefusal() {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(mu_);
  if (now < next_refusal_logged_) return false;
  next_refusal_logged_ = now + kStreamRefusalLogInterval;
  return true;
}

}  // namespace pawl
