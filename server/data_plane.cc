#include "server/data_plane.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "server/pushback.h"
#include "server/replication/change.h"
#include "server/shard/partition_snapshot.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// After this many refused requests only every so many-th is logged: a broken client must not fill the disk.
constexpr uint64_t kRefusalsLogged = 100;
constexpr uint64_t kRefusalLogInterval = 1000;
// Of the keys and values of one segment: as a record of the log, and in a message to a backup, it must be within
// kMaxMessageBytes again, with what is said about it there.
constexpr size_t kMaxSegmentBytes = kMaxMessageBytes - 4096;

absl::string_view MethodName(Method method) {
  switch (method) {
    case Method::kPush:
      return "Push";
    case Method::kPull:
      return "Pull";
    case Method::kEndStep:
      return "EndStep";
    case Method::kTakeOver:
      return "TakeOver";
    case Method::kReplicate:
      return "Replicate";
    case Method::kInstallSnapshot:
      return "InstallSnapshot";
  }
  std::abort();
}

std::string DescribeSender(const RequestHeader& header) {
  switch (header.sender_case()) {
    case RequestHeader::kLogicalWorker:
      return absl::StrCat("logical worker ", header.logical_worker(), " incarnation ", header.incarnation(), " step ",
                          header.step());
    case RequestHeader::kClient:
      return absl::StrCat("client ", header.client(), " incarnation ", header.incarnation());
    default:
      return "a caller without a name";
  }
}

absl::Status NoSuchTable(uint32_t table) {
  return absl::NotFoundError(absl::StrCat("there is no table with id ", table, "; create it through the scheduler first"));
}

}  // namespace

class DataPlane::Reservation {
 public:
  // Of `total`, which is to be at most `limit`; null if it would be more.
  static std::shared_ptr<Reservation> Take(const std::shared_ptr<std::atomic<size_t>>& total, size_t limit, size_t bytes) {
    const size_t before = total->fetch_add(bytes, std::memory_order_relaxed);
    auto reservation = std::make_shared<Reservation>(total, bytes);
    // One request is always taken, however large, or it would never be.
    if (before > 0 && before + bytes > limit) return nullptr;
    return reservation;
  }
  Reservation(std::shared_ptr<std::atomic<size_t>> in_flight, size_t bytes)
      : in_flight_(std::move(in_flight)), bytes_(bytes) {}
  ~Reservation() { in_flight_->fetch_sub(bytes_, std::memory_order_relaxed); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  const std::shared_ptr<std::atomic<size_t>> in_flight_;
  const size_t bytes_;
};

DataPlane::DataPlane(const DataPlaneOptions& options, const Clock& clock, Transport* peers,
                     std::function<MonotonicTime()> lease_until)
    : options_(options),
      clock_(clock),
      lease_until_(std::move(lease_until)),
      hosting_(clock),
      waiting_(options.max_waiting_calls, clock, hosting_),
      receiver_(hosting_, waiting_, recent_, clock, options.max_bytes_arriving) {
  if (peers == nullptr) return;
  replicator_ = std::make_unique<Replicator>(
      options.replication, *peers, clock, recent_,
      Replicator::Events{.header =
                             [this] {
                               ReplicationHeader header = hosting_.Header();
                               header.set_wants_promise(SchedulerIsSilent());
                               return header;
                             },
                         .routing = [this](const RoutingTable& routing) { AdoptRouting(routing); },
                         .find = [this](uint32_t partition) -> std::shared_ptr<Replica> {
                           const auto view = hosting_.view();
                           return view->Find(partition) == nullptr ? nullptr : view->replicas[partition];
                         },
                         .advanced = [this](const std::shared_ptr<Replica>& replica) { OnAdvanced(replica); }});
  hosting_.SetReplicator(replicator_.get());
}

void DataPlane::SetLog(ChangeLog& log) {
  log_ = &log;
  hosting_.SetLog(&log);
  receiver_.SetLog(&log);
}

DataPlane::~DataPlane() { Close(absl::UnavailableError("the server is going away")); }

PartitionOptions DataPlane::OptionsOf(const Job& job, uint64_t max_rows_per_partition) {
  PartitionOptions options;
  options.job_seed = job.seed();
  options.partitions = job.partitions();
  options.logical_workers = job.logical_workers();
  options.consistency = job.consistency();
  options.max_rows = max_rows_per_partition;
  return options;
}

void DataPlane::Begin(const RegisterResponse& registration) {
  const std::chrono::milliseconds lease(registration.lease_ms());
  hosting_.Begin(registration.job_id(), OptionsOf(registration.job(), options_.max_rows_per_partition), registration.node(),
                 registration.incarnation(), lease);
  receiver_.SetPromise(lease);
  MutexLock lock(closed_mu_);
  lease_ = lease;
}

void DataPlane::AdoptRouting(const RoutingTable& routing) {
  std::vector<std::shared_ptr<WaitingCall>> ready;
  std::vector<std::shared_ptr<WaitingCall>> stale;
  if (!hosting_.AdoptRouting(routing, ready, stale)) return;
  WaitingCalls::GoOn(ready);
  waiting_.TellStale(stale);
  if (replicator_ != nullptr) replicator_->Pump();
}

bool DataPlane::IsRouted() const {
  const auto view = hosting_.view();
  return view->epoch > 0 && view->adopted_in == view->incarnation;
}

void DataPlane::OnDurable(uint32_t partition, uint64_t index) {
  const auto view = hosting_.view();
  if (view->Find(partition) == nullptr) return;
  const std::shared_ptr<Replica>& replica = view->replicas[partition];
  {
    MutexLock lock(replica->mu);
    replica->durable_index = std::max(replica->durable_index, index);
  }
  OnAdvanced(replica);
}

std::optional<HeldSnapshot> DataPlane::Hold(uint32_t partition) const {
  const auto view = hosting_.view();
  if (view->Find(partition) == nullptr) return std::nullopt;
  Replica& replica = *view->Find(partition);
  MutexLock lock(replica.mu);
  if (replica.partition == nullptr) return std::nullopt;
  return HoldSnapshot(*replica.partition);
}

void DataPlane::OnAdvanced(const std::shared_ptr<Replica>& replica) {
  std::vector<std::shared_ptr<WaitingCall>> ready;
  {
    MutexLock lock(replica->mu);
    replica->TakeReady(ready);
  }
  WaitingCalls::GoOn(ready);
}

bool DataPlane::Serves(uint32_t partition) const {
  const std::vector<uint32_t> served = Served();
  return std::binary_search(served.begin(), served.end(), partition);
}

std::vector<uint32_t> DataPlane::Served() const {
  std::vector<uint32_t> served;
  {
    MutexLock lock(closed_mu_);
    if (!closed_.ok()) return served;
  }
  const auto view = hosting_.view();
  for (const std::shared_ptr<Replica>& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (replica->IsPrimary() && CheckServes(*replica, view->epoch).ok() && CheckLease(*replica).ok()) {
      served.push_back(replica->index);
    }
  }
  return served;
}

bool DataPlane::HostsNothing() const {
  const auto view = hosting_.view();
  return std::all_of(view->replicas.begin(), view->replicas.end(), [](const auto& replica) { return replica == nullptr; });
}

absl::StatusOr<std::shared_ptr<const DataPlane::View>> DataPlane::Admit(const RequestHeader& header, Sender& sender) const {
  {
    MutexLock lock(closed_mu_);
    PAWL_RETURN_IF_ERROR(closed_);
  }
  auto view = hosting_.view();
  if (view->epoch == 0) return absl::UnavailableError("this server has no routing table yet");
  if (header.job_id() != view->job_id) {
    return absl::NotFoundError(absl::StrCat("job_id ", header.job_id(), " is not that of the job of this server"));
  }
  if (header.epoch() > view->epoch) {
    return absl::UnavailableError(
        absl::StrCat("routing epoch ", header.epoch(), " has not reached this server, which is at ", view->epoch));
  }
  sender = SenderOf(header);
  if (sender.kind == Sender::Kind::kLogicalWorker && sender.number >= view->options.logical_workers) {
    return absl::OutOfRangeError(
        absl::StrCat("logical_worker ", sender.number, ": the job has ", view->options.logical_workers));
  }
  return view;
}

absl::StatusOr<std::shared_ptr<Replica>> DataPlane::Find(const View& view, uint32_t partition) const {
  if (partition >= view.replicas.size()) {
    return absl::OutOfRangeError(absl::StrCat("partition ", partition, ": the job has ", view.replicas.size()));
  }
  if (view.replicas[partition] == nullptr) return StaleRouting(view, absl::StrCat("partition ", partition, " is elsewhere"));
  return view.replicas[partition];
}

absl::Status DataPlane::CheckServes(Replica& replica, uint64_t epoch) const {
  if (!replica.IsPrimary()) {
    return StaleRouting(*hosting_.view(), absl::StrCat("partition ", replica.index, " has its primary elsewhere"));
  }
  if (epoch < replica.primary_since) {
    return StaleRouting(*hosting_.view(), absl::StrCat("routing epoch ", epoch, " is old: partition ", replica.index,
                                                       " has its primary since ", replica.primary_since));
  }
  if (clock_.Now() < replica.serves_from) {
    return absl::UnavailableError(
        absl::StrCat("partition ", replica.index, " waits until its last primary cannot serve any more"));
  }
  return absl::OkStatus();
}

absl::Status DataPlane::CheckLease(Replica& replica) const {
  if (lease_until_ == nullptr) return absl::OkStatus();
  const MonotonicTime now = clock_.Now();
  MonotonicTime until = MonotonicTime::max();
  for (const Follower& follower : replica.followers) {
    if (follower.counts) until = std::min(until, replicator_->PromisedUntil(follower.node, follower.incarnation));
  }
  // Nobody but a follower that counts can become the primary.
  if (now < until || now < lease_until_()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("partition ", replica.index, ": this server's lease has run out, and another may be the primary"));
}

void DataPlane::Record(Replica& replica, ChangeView change, const std::shared_ptr<const void>& owner) {
  if (log_ == nullptr && replica.followers.empty()) return;
  change.index = replica.partition->log_index();
  change.partition = replica.index;
  OutgoingMessage entry = EncodeLogEntry(change, owner);
  if (log_ != nullptr) log_->Append(replica.index, change.index, entry.bytes, entry.owner);
  if (!replica.followers.empty()) {
    replica.SendToFollowers({replica.index, change.index, std::move(entry.bytes), std::move(entry.owner)});
  }
}

void DataPlane::Handle(Method method, IncomingMessage request, CallContext context, Reply reply) {
  switch (method) {
    case Method::kPush:
      return Push(std::move(request), std::move(context), std::move(reply));
    case Method::kPull:
      return Pull(std::move(request), std::move(context), std::move(reply));
    case Method::kEndStep:
      return EndStep(std::move(request), std::move(context), std::move(reply));
    case Method::kTakeOver:
      return TakeOver(std::move(request), std::move(context), std::move(reply));
    case Method::kReplicate:
      return receiver_.Replicate(std::move(request), std::move(context), std::move(reply));
    case Method::kInstallSnapshot:
      return receiver_.InstallSnapshot(std::move(request), std::move(reply));
  }
}

absl::Status DataPlane::TooManyBytesInFlight() const {
  return WithPushback(
      absl::ResourceExhaustedError(absl::StrCat("more than ", options_.max_bytes_in_flight, " bytes are in flight")));
}

absl::Status DataPlane::TooManyBytesWait() const {
  return WithPushback(absl::ResourceExhaustedError(
      absl::StrCat("pulls of more than ", options_.max_waiting_pull_bytes, " bytes wait for their steps")));
}

absl::Status DataPlane::CheckLogHasRoom(uint64_t bytes) const {
  if (log_ == nullptr) return absl::OkStatus();
  const absl::Status status = log_->CheckRoom(bytes);
  return status.ok() ? status : WithPushback(status);
}

void DataPlane::Refuse(Method method, const RequestHeader* header, absl::Status status, Reply& reply) {
  const bool routing_moved = status.GetPayload(kRoutingPayloadUrl).has_value();
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition: {
      if (routing_moved) break;
      const uint64_t refused = requests_refused_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (refused <= kRefusalsLogged || refused % kRefusalLogInterval == 0) {
        spdlog::warn("refused {} of {}: {} (refusal {})", std::string(MethodName(method)),
                     header == nullptr ? "an unknown sender" : DescribeSender(*header), status.ToString(), refused);
      }
      break;
    }
    default:
      break;
  }
  reply(std::move(status), OutgoingMessage());
}

void DataPlane::Push(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePushRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPush, nullptr, decoded.status(), reply);
  auto request = std::make_shared<PushRequestView>(*std::move(decoded));
  const RequestHeader& header = request->header;
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kPush, &header, view.status(), reply);
  if (header.sender_case() == RequestHeader::SENDER_NOT_SET) {
    return Refuse(
        Method::kPush, &header,
        absl::InvalidArgumentError("header.sender is not set: a push needs a logical_worker or a client to be named by"),
        reply);
  }
  const auto reservation = Reservation::Take(bytes_in_flight_, options_.max_bytes_in_flight, message.bytes.size());
  if (reservation == nullptr) {
    return reply(TooManyBytesInFlight(), OutgoingMessage());
  }
  if (absl::Status room = CheckLogHasRoom(message.bytes.size()); !room.ok()) {
    return reply(std::move(room), OutgoingMessage());
  }
  std::vector<std::shared_ptr<Replica>> replicas;
  for (const PushSegmentView& segment : request->segments) {
    auto replica = Find(**view, segment.partition);
    absl::Status status = replica.status();
    if (const size_t bytes = segment.keys.size() + segment.values.size(); bytes > kMaxSegmentBytes) {
      status = absl::InvalidArgumentError(absl::StrCat("a segment of table ", segment.table, " has ", bytes,
                                                       " bytes of keys and values; the limit is ", kMaxSegmentBytes));
    }
    if (status.ok()) {
      if (replicas.empty() || replicas.back() != *replica) replicas.push_back(*std::move(replica));
      const auto table = (*view)->tables.find(segment.table);
      status = table == (*view)->tables.end()
                   ? NoSuchTable(segment.table)
                   : table->second->CheckGradient(segment.element_type, segment.keys, segment.values, segment.partition,
                                                  (*view)->options.partitions);
    }
    if (!status.ok()) return Refuse(Method::kPush, &header, std::move(status), reply);
  }
  auto act = [this, view = *view, sender, request, reservation, context, message = std::move(message),
              reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return Refuse(Method::kPush, &request->header, std::move(status), reply);
    std::vector<ChangeMark> marks;
    PAWL_FAILPOINT("push.apply");
    auto response = ApplyPush(*view, sender, *request, message, marks);
    PAWL_FAILPOINT("push.applied");
    if (replicator_ != nullptr) replicator_->PumpLanes();
    if (!response.ok()) return Refuse(Method::kPush, &request->header, response.status(), reply);
    waiting_.ForCommit(marks, std::move(context),
                       [this, request, reservation, response = *std::move(response),
                        reply = std::move(reply)](absl::Status committed) mutable {
                         if (!committed.ok()) return Refuse(Method::kPush, &request->header, std::move(committed), reply);
                         PAWL_FAILPOINT("push.acknowledge");
                         reply(absl::OkStatus(), EncodeSmall(response));
                         PAWL_FAILPOINT("push.acknowledged");
                       });
  };
  const bool waits_for_step = sender.kind == Sender::Kind::kLogicalWorker && (*view)->options.consistency.mode() == SYNC;
  if (!waits_for_step) return act(absl::OkStatus());
  // Who is out of turn or superseded is told at once, not after a wait.
  if (absl::Status status = CheckPush(**view, sender, *request); !status.ok()) return act(std::move(status));
  waiting_.ForStep(replicas, sender.step, context, std::move(act));
}

absl::Status DataPlane::CheckPush(const View& view, const Sender& sender, const PushRequestView& request) const {
  absl::flat_hash_map<uint32_t, PushesAhead> ahead;
  for (const PushSegmentView& segment : request.segments) {
    Replica& replica = *view.replicas[segment.partition];
    PushesAhead& before = ahead[segment.partition];
    MutexLock lock(replica.mu);
    PAWL_RETURN_IF_ERROR(CheckServes(replica, request.header.epoch()));
    if (replica.partition->FindTable(segment.table) == nullptr) return NoSuchTable(segment.table);
    const absl::Status status = replica.partition->CheckPush(sender, segment.ordinal, segment.table,
                                                             Gradient{segment.keys, segment.values, nullptr}, before);
    if (absl::IsUnavailable(status)) return WithPushback(status);
    PAWL_RETURN_IF_ERROR(status);
    before.keys += segment.keys.size() / sizeof(uint64_t);
    before.bytes += segment.keys.size() + segment.values.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<PushResponse> DataPlane::ApplyPush(const View& view, const Sender& sender, const PushRequestView& request,
                                                  const IncomingMessage& message, std::vector<ChangeMark>& marks) {
  // All before any: a push that is refused has changed nothing. (What another
  // request, or a new routing, changes in between can still split it; its push ids then complete it.)
  PAWL_RETURN_IF_ERROR(CheckPush(view, sender, request));
  PushResponse response;
  for (const PushSegmentView& segment : request.segments) {
    const std::shared_ptr<Replica>& replica = view.replicas[segment.partition];
    MutexLock lock(replica->mu);
    PAWL_RETURN_IF_ERROR(CheckServes(*replica, request.header.epoch()));
    Partition& partition = *replica->partition;
    const uint64_t before = partition.log_index();
    const auto outcome = partition.Push(sender, segment.ordinal, segment.table,
                                        Gradient{segment.keys, segment.values, message.owner, message.bytes.size()});
    if (absl::IsUnavailable(outcome.status())) return WithPushback(outcome.status());
    PAWL_RETURN_IF_ERROR(outcome.status());
    if (partition.log_index() != before) {
      ChangeView change;
      change.kind = ChangeView::Kind::kPush;
      change.sender = HeaderOf(sender);
      change.segment = segment;
      Record(*replica, std::move(change), message.owner);
    }
    // A duplicate waits for the original.
    if (marks.empty() || marks.back().replica != replica) {
      marks.push_back(MarkOf(replica));
    } else {
      marks.back().index = partition.log_index();
    }
    switch (*outcome) {
      case PushOutcome::kAccepted:
        response.set_accepted(response.accepted() + 1);
        break;
      case PushOutcome::kDuplicate:
        ++replica->pushes_deduplicated;
        response.set_deduplicated(response.deduplicated() + 1);
        break;
      case PushOutcome::kLate:
        response.set_late(response.late() + 1);
        break;
    }
  }
  return response;
}

void DataPlane::Pull(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePullRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPull, nullptr, decoded.status(), reply);
  auto request = std::make_shared<PullRequestView>(*std::move(decoded));
  const RequestHeader& header = request->header;
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kPull, &header, view.status(), reply);
  std::vector<size_t> value_bytes;
  std::vector<std::shared_ptr<Replica>> replicas;
  size_t total_bytes = 0;
  for (const PullSegmentView& segment : request->segments) {
    size_t bytes = 0;
    auto replica = Find(**view, segment.partition);
    absl::Status status = replica.status();
    const auto table = (*view)->tables.find(segment.table);
    if (status.ok() && table == (*view)->tables.end()) status = NoSuchTable(segment.table);
    if (status.ok()) status = table->second->CheckKeys(segment.keys, segment.partition, (*view)->options.partitions, bytes);
    total_bytes += bytes;
    if (status.ok() && total_bytes > kMaxMessageBytes) {
      status = absl::InvalidArgumentError(
          absl::StrCat("the pulled values take more than ", kMaxMessageBytes, " bytes; pull fewer keys at a time"));
    }
    if (!status.ok()) return Refuse(Method::kPull, &header, std::move(status), reply);
    if (replicas.empty() || replicas.back() != *replica) replicas.push_back(*std::move(replica));
    value_bytes.push_back(bytes);
  }
  const bool waits_for_step = header.sender_case() == RequestHeader::kLogicalWorker;
  std::shared_ptr<Reservation> request_bytes;
  if (waits_for_step) {
    request_bytes = Reservation::Take(waiting_pull_bytes_, options_.max_waiting_pull_bytes, message.bytes.size());
    if (request_bytes == nullptr) return reply(TooManyBytesWait(), OutgoingMessage());
  }
  // The answer's bytes are reserved when it is made: pulls that wait must not
  // keep out the pushes that they wait for.
  auto act = [this, view = *view, sender, waits_for_step, request, request_bytes = std::move(request_bytes), total_bytes,
              value_bytes = std::move(value_bytes), owner = message.owner,
              reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return reply(std::move(status), OutgoingMessage());
    auto reservation = Reservation::Take(bytes_in_flight_, options_.max_bytes_in_flight, total_bytes);
    if (reservation == nullptr) return reply(TooManyBytesInFlight(), OutgoingMessage());
    auto answer = AnswerPull(*view, waits_for_step ? &sender : nullptr, *request, value_bytes, std::move(reservation));
    if (!answer.ok()) return Refuse(Method::kPull, &request->header, answer.status(), reply);
    reply(absl::OkStatus(), *std::move(answer));
  };
  if (!waits_for_step) return act(absl::OkStatus());
  waiting_.ForStep(replicas, sender.step, std::move(context), std::move(act));
}

absl::StatusOr<OutgoingMessage> DataPlane::AnswerPull(const View& view, const Sender* sender, const PullRequestView& request,
                                                      const std::vector<size_t>& value_bytes,
                                                      std::shared_ptr<const Reservation> reservation) {
  // Rows are copied, since many are small; blocks are lent.
  struct Owned {
    std::shared_ptr<const Reservation> reservation;  // destroyed last
    std::unique_ptr<char[]> rows;
    std::vector<BlockLoan> blocks;
  };
  const auto is_dense = [&](const PullSegmentView& segment) { return view.tables.find(segment.table)->second->is_dense(); };
  size_t row_bytes = 0;
  for (size_t i = 0; i < request.segments.size(); ++i) row_bytes += is_dense(request.segments[i]) ? 0 : value_bytes[i];
  const auto owned = std::make_shared<Owned>();
  owned->reservation = std::move(reservation);
  owned->rows = std::make_unique_for_overwrite<char[]>(row_bytes);
  std::vector<ByteView> results(request.segments.size());
  char* out = owned->rows.get();
  for (size_t i = 0; i < request.segments.size(); ++i) {
    const PullSegmentView& segment = request.segments[i];
    const bool lends = is_dense(segment);
    const size_t lent_before = owned->blocks.size();
    {
      Replica& replica = *view.replicas[segment.partition];
      MutexLock lock(replica.mu);
      PAWL_RETURN_IF_ERROR(CheckServes(replica, request.header.epoch()));
      PAWL_RETURN_IF_ERROR(CheckLease(replica));
      if (replica.partition->FindTable(segment.table) == nullptr) return NoSuchTable(segment.table);
      if (sender != nullptr) {
        replica.staleness_max = std::max(replica.staleness_max, replica.partition->Staleness(sender->number, sender->step));
      }
      replica.keys_pulled += segment.keys.size() / sizeof(uint64_t);
      if (lends) {
        replica.partition->Lend(segment.table, segment.keys, owned->blocks);
      } else {
        replica.partition->Pull(segment.table, segment.keys, out);
      }
    }
    if (lends) {
      for (size_t k = lent_before; k < owned->blocks.size(); ++k) {
        results[i].Append(owned->blocks[k].data(), owned->blocks[k].size() * sizeof(float));
      }
    } else {
      results[i].Append(out, value_bytes[i]);
      out += value_bytes[i];
    }
  }
  return EncodePullResponse(results, owned);
}

absl::StatusOr<std::vector<DataPlane::StepEnd>> DataPlane::StepEnds(const View& view, const EndStepRequest& request) const {
  if (request.segments_size() > 0 && request.partitions_size() != request.segments_size()) {
    return absl::InvalidArgumentError(absl::StrCat("segments has ", request.segments_size(), " entries for ",
                                                   request.partitions_size(), " partitions; each needs one"));
  }
  std::vector<StepEnd> ends;
  if (request.partitions().empty()) {
    // Of one routing only: by another one a partition could be missed between two primaries.
    if (request.header().epoch() != view.epoch) {
      return StaleRouting(view, absl::StrCat("routing epoch ", request.header().epoch(), " is old"));
    }
    for (const auto& replica : view.replicas) {
      if (replica == nullptr) continue;
      MutexLock lock(replica->mu);
      if (replica->IsPrimary()) ends.push_back({replica, std::nullopt});
    }
    return ends;
  }
  for (int i = 0; i < request.partitions_size(); ++i) {
    PAWL_ASSIGN_OR_RETURN(auto replica, Find(view, request.partitions(i)));
    std::optional<uint64_t> segments;
    if (request.segments_size() > 0) segments = request.segments(i);
    ends.push_back({std::move(replica), segments});
  }
  return ends;
}

void DataPlane::EndStep(IncomingMessage message, CallContext context, Reply reply) {
  EndStepRequest request;
  if (absl::Status status = DecodeSmall(message.bytes, request); !status.ok()) {
    return Refuse(Method::kEndStep, nullptr, std::move(status), reply);
  }
  const RequestHeader& header = request.header();
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kEndStep, &header, view.status(), reply);
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return Refuse(Method::kEndStep, &header,
                  absl::InvalidArgumentError("header.logical_worker is not set: only a logical worker ends steps"), reply);
  }
  auto ends = StepEnds(**view, request);
  absl::Status status = ends.status();
  if (status.ok()) status = CheckLogHasRoom(message.bytes.size());
  if (status.ok()) {
    for (const StepEnd& end : *ends) {
      MutexLock lock(end.replica->mu);
      status = CheckServes(*end.replica, header.epoch());
      if (status.ok()) status = end.replica->partition->CheckEndStep(sender, end.segments);
      if (!status.ok()) break;
    }
  }
  std::vector<std::shared_ptr<WaitingCall>> ready;
  std::vector<ChangeMark> marks;
  if (status.ok()) {
    for (const StepEnd& end : *ends) {
      MutexLock lock(end.replica->mu);
      status = CheckServes(*end.replica, header.epoch());
      if (!status.ok()) break;
      Partition& partition = *end.replica->partition;
      const uint64_t before = partition.log_index();
      status = partition.EndStep(sender, end.segments);
      if (!status.ok()) break;
      if (partition.log_index() != before) {
        ChangeView change;
        change.kind = ChangeView::Kind::kEndStep;
        change.sender = HeaderOf(sender);
        change.segments = end.segments;
        Record(*end.replica, std::move(change), nullptr);
        TakeCutIfDue(end.replica);
      }
      marks.push_back(MarkOf(end.replica));
      end.replica->TakeReady(ready);
    }
  }
  if (replicator_ != nullptr) replicator_->PumpLanes();
  if (status.ok()) {
    waiting_.ForCommit(marks, std::move(context),
                       [this, header, partitions = marks.size(), reply = std::move(reply)](absl::Status committed) mutable {
                         if (!committed.ok()) return Refuse(Method::kEndStep, &header, std::move(committed), reply);
                         EndStepResponse response;
                         response.set_partitions(static_cast<uint32_t>(partitions));
                         reply(absl::OkStatus(), EncodeSmall(response));
                       });
  } else {
    Refuse(Method::kEndStep, &header, std::move(status), reply);
  }
  WaitingCalls::GoOn(ready);
}

void DataPlane::TakeOver(IncomingMessage message, CallContext context, Reply reply) {
  TakeOverRequest request;
  if (absl::Status status = DecodeSmall(message.bytes, request); !status.ok()) {
    return Refuse(Method::kTakeOver, nullptr, std::move(status), reply);
  }
  const RequestHeader& header = request.header();
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kTakeOver, &header, view.status(), reply);
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return Refuse(Method::kTakeOver, &header,
                  absl::InvalidArgumentError("header.logical_worker is not set: say whose life begins"), reply);
  }
  TakeOverResponse response;
  std::vector<std::shared_ptr<WaitingCall>> ready;
  std::vector<ChangeMark> marks;
  absl::Status status = CheckLogHasRoom(message.bytes.size());
  for (const uint32_t p : request.partitions()) {
    if (!status.ok()) break;
    auto replica = Find(**view, p);
    status = replica.status();
    if (!status.ok()) break;
    MutexLock lock((*replica)->mu);
    status = CheckServes(**replica, header.epoch());
    if (!status.ok()) break;
    Partition& partition = *(*replica)->partition;
    const uint64_t before = partition.log_index();
    const auto clock = partition.TakeOver(sender.number, sender.incarnation);
    status = clock.status();
    if (!status.ok()) break;
    response.add_clocks(*clock);
    if (partition.log_index() != before) {
      ChangeView change;
      change.kind = ChangeView::Kind::kTakeOver;
      change.sender = HeaderOf(sender);
      Record(**replica, std::move(change), nullptr);
      // After all were released, the clocks that count may be further than they were.
      TakeCutIfDue(*replica);
      (*replica)->TakeReady(ready);
    }
    marks.push_back(MarkOf(*replica));
  }
  if (replicator_ != nullptr) replicator_->PumpLanes();
  WaitingCalls::GoOn(ready);
  if (!status.ok()) return Refuse(Method::kTakeOver, &header, std::move(status), reply);
  waiting_.ForCommit(
      marks, std::move(context),
      [this, header, response = std::move(response), reply = std::move(reply)](absl::Status committed) mutable {
        if (!committed.ok()) return Refuse(Method::kTakeOver, &header, std::move(committed), reply);
        reply(absl::OkStatus(), EncodeSmall(response));
      });
}

void DataPlane::Tick() {
  waiting_.Expire();
  receiver_.Tick();
  PrepareReport();
  if (replicator_ == nullptr) return;
  bool asks = SchedulerIsSilent();
  if (asks) {
    MutexLock lock(closed_mu_);
    const MonotonicTime now = clock_.Now();
    asks = now >= next_promise_;
    if (asks) next_promise_ = now + kPromiseInterval;
  }
  replicator_->Tick(asks);
}

bool DataPlane::SchedulerIsSilent() const {
  if (lease_until_ == nullptr) return false;
  MutexLock lock(closed_mu_);
  return clock_.Now() + lease_ / 2 > lease_until_();
}

void DataPlane::LiftRepairLimit() {
  if (replicator_ != nullptr) replicator_->LiftLimit();
}

void DataPlane::Close(absl::Status status) {
  {
    MutexLock lock(closed_mu_);
    if (closed_.ok()) closed_ = status;
  }
  if (replicator_ != nullptr) replicator_->Close();
  waiting_.Close(status);
}

}  // namespace pawl
