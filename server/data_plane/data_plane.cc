#include "server/data_plane/data_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/ticket.h"
#include "server/replication/backpressure.h"
#include "server/shard/partition_options.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/threads/helper_threads.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// Refusals beyond the first kRefusalsLogged are logged only every kRefusalLogInterval: a broken
// client must not fill the disk.
constexpr uint64_t kRefusalsLogged = 100;
constexpr uint64_t kRefusalLogInterval = 1000;

std::string DescribeSender(const RequestHeader& header) {
  switch (header.sender_case()) {
    case RequestHeader::kLogicalWorker:
      return absl::StrCat("logical worker ", header.logical_worker(), " incarnation ",
                          header.incarnation(), " step ", header.step());
    case RequestHeader::kClient:
      return absl::StrCat("client ", header.client(), " incarnation ", header.incarnation());
    default:
      return "an unnamed caller";
  }
}

}  // namespace

DataPlane::DataPlane(const DataPlaneOptions& options, const Clock& clock, Transport* peers,
                     JobMembership* membership)
    : options_(options),
      clock_(clock),
      membership_(membership),
      replica_map_(clock, options.replication.learners),
      waiting_(options.max_waiting_calls, clock,
               [this](absl::string_view message) {
                 return StaleRouting(*replica_map_.view(), message);
               }),
      tail_(options.max_tail_bytes),
      receiver_(replica_map_, waiting_, tail_, clock, options.max_partial_snapshot_bytes,
                options.helpers) {
  if (peers == nullptr) return;
  replicator_ = std::make_unique<Replicator>(options.replication, *peers, clock, tail_, *this);
  replica_map_.SetReplicator(replicator_.get());
}

void DataPlane::SetLog(DurableLog& log) {
  log_ = &log;
  replica_map_.SetLog(&log);
  receiver_.SetLog(&log);
  if (replicator_ != nullptr) replicator_->SetLog(&log);
}

DataPlane::~DataPlane() { Close(absl::UnavailableError("the server is ending")); }

void DataPlane::Begin(const RegisterResponse& registration) {
  const std::chrono::milliseconds lease(registration.lease_ms());
  if (registration.job_id() != job_id()) started_ = false;
  {
    // Before the job is set, and with it requests are admitted.
    MutexLock lock(closed_mu_);
    lease_ = lease;
    ticket_key_ = registration.ticket_key();
  }
  replica_map_.Begin(registration.job_id(),
                     PartitionOptionsOf(registration.job(), options_.max_rows_per_partition),
                     registration.job().min_in_sync(), registration.node(),
                     registration.incarnation(),
                     std::max(lease, std::chrono::milliseconds(registration.longest_lease_ms())));
  receiver_.SetPromise(lease);
  is_replicated_ = registration.job().replicas() > 1;
}

void DataPlane::AdoptRouting(const RoutingTable& routing) {
  std::vector<std::shared_ptr<WaitingCall>> ready;
  std::vector<std::shared_ptr<WaitingCall>> stale;
  if (!replica_map_.AdoptRouting(routing, ready, stale)) return;
  WaitingCalls::ResumeReady(ready);
  waiting_.FailStale(stale);
  if (replicator_ != nullptr) replicator_->Pump();
  EndHandovers();
}

void DataPlane::OnConfirmed(uint64_t epoch) {
  std::vector<std::shared_ptr<WaitingCall>> ready;
  replica_map_.OnConfirmed(epoch, ready);
  WaitingCalls::ResumeReady(ready);
}

bool DataPlane::IsRouted() const {
  const auto view = replica_map_.view();
  return view->epoch > 0 && view->adopted_in == view->incarnation;
}

bool DataPlane::OnDurable(uint32_t partition) {
  const auto view = replica_map_.view();
  if (view->Find(partition) == nullptr) return true;
  Replica& replica = *view->replicas[partition];
  std::vector<std::shared_ptr<WaitingCall>> ready;
  if (!replica.mu.TryLock()) return false;
  replica.durable_index = log_->DurableIndex(partition);
  replica.TakeReady(ready);
  replica.mu.Unlock();
  WaitingCalls::ResumeReady(ready);
  return true;
}

std::optional<HeldSnapshot> DataPlane::Hold(uint32_t partition) {
  const auto view = replica_map_.view();
  if (view->Find(partition) == nullptr) return std::nullopt;
  Replica& replica = *view->Find(partition);
  MutexLock lock(replica.mu);
  if (replica.partition == nullptr || replica.IsFollowerReadingLog()) return std::nullopt;
  return HoldSnapshot(*replica.partition);
}

ReplicationHeader DataPlane::Header() const {
  ReplicationHeader header = replica_map_.Header();
  header.set_wants_promise(SchedulerIsSilent());
  return header;
}

std::shared_ptr<Replica> DataPlane::FindReplica(uint32_t partition) const {
  const auto view = replica_map_.view();
  return view->Find(partition) == nullptr ? nullptr : view->replicas[partition];
}

void DataPlane::OnAdvanced(const std::shared_ptr<Replica>& replica) {
  std::vector<std::shared_ptr<WaitingCall>> ready;
  bool is_yielding = false;
  {
    MutexLock lock(replica->mu);
    replica->TakeReady(ready);
    is_yielding = replica->yields_until.has_value();
  }
  WaitingCalls::ResumeReady(ready);
  if (is_yielding) EndHandovers();
}

void DataPlane::EndHandovers() {
  if (replica_map_.EndHandovers() && membership_ != nullptr) membership_->OnHandedOver();
}

std::vector<uint32_t> DataPlane::Served() const {
  std::vector<uint32_t> served;
  {
    MutexLock lock(closed_mu_);
    if (!closed_.ok()) return served;
  }
  const auto view = replica_map_.view();
  for (const std::shared_ptr<Replica>& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (replica->HasDataAsPrimary() && CheckServes(*replica, view->epoch).ok() &&
        CheckLease(*replica).ok()) {
      served.push_back(replica->index);
    }
  }
  return served;
}

bool DataPlane::IsDrained() const {
  const auto view = replica_map_.view();
  return std::all_of(view->replicas.begin(), view->replicas.end(), [&](const auto& replica) {
    if (replica == nullptr) return true;
    const auto partition = static_cast<int>(replica->index);
    // A primary that has confirmed that it does not need this server.
    const bool others_have_it = partition < view->routing.replicas_size() &&
                                view->routing.primary(partition) != kNoPrimary &&
                                view->routing.replicas(partition).confirm_since() == 0;
    MutexLock lock(replica->mu);
    return replica->role == ReplicaRole::kRetained && others_have_it;
  });
}

namespace {

absl::Status CheckTicket(const std::string& key, const RequestHeader& header,
                         const Sender& sender) {
  if (header.sender_case() == RequestHeader::SENDER_NOT_SET) return absl::OkStatus();
  const bool is_rank = sender.kind == Sender::Kind::kLogicalWorker;
  if (IsTicketOf(key, is_rank ? TicketSender::kRank : TicketSender::kClient, sender.number,
                 sender.incarnation, header.ticket())) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the ticket is not that of ", is_rank ? "logical worker " : "client ",
                   sender.number, " in incarnation ", sender.incarnation));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DataPlane::View>> DataPlane::Admit(const RequestHeader& header,
                                                                        Sender& sender) const {
  std::string ticket_key;
  {
    MutexLock lock(closed_mu_);
    PAWL_RETURN_IF_ERROR(closed_);
    ticket_key = ticket_key_;
  }
  auto view = replica_map_.view();
  if (view->epoch == 0) return absl::UnavailableError("this server has no routing table yet");
  // The sender's server has died, and this one has got its address. Newer routing is on its way.
  if (header.job_id() != view->job_id)
    return absl::UnavailableError(WrongJob(header.job_id()).message());
  if (header.epoch() > view->epoch) return RoutingNotArrived(*view, header.epoch());
  sender = SenderOf(header);
  if (sender.kind == Sender::Kind::kLogicalWorker &&
      sender.number >= view->options.logical_workers) {
    return absl::OutOfRangeError(absl::StrCat("logical_worker ", sender.number, ": the job has ",
                                              view->options.logical_workers));
  }
  if (sender.kind == Sender::Kind::kClient && sender.number >= kMaxClients) {
    return absl::OutOfRangeError(
        absl::StrCat("client ", sender.number, ": the largest number is ", kMaxClients - 1));
  }
  if (!ticket_key.empty()) PAWL_RETURN_IF_ERROR(CheckTicket(ticket_key, header, sender));
  return view;
}

absl::StatusOr<std::shared_ptr<Replica>> DataPlane::Find(const View& view,
                                                         uint32_t partition) const {
  if (partition >= view.replicas.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("partition ", partition, ": the job has ", view.replicas.size()));
  }
  if (view.replicas[partition] == nullptr)
    return StaleRouting(view, absl::StrCat("partition ", partition, " is on another server"));
  return view.replicas[partition];
}

absl::Status DataPlane::CheckServes(Replica& replica, uint64_t epoch) const {
  if (!replica.HasDataAsPrimary()) {
    return StaleRouting(*replica_map_.view(), absl::StrCat("partition ", replica.index,
                                                           " has its primary on another server"));
  }
  if (epoch < replica.primary_since) {
    return StaleRouting(
        *replica_map_.view(),
        absl::StrCat("routing epoch ", epoch, " is out of date: partition ", replica.index,
                     " has its primary since ", replica.primary_since));
  }
  if (clock_.LeaseNow() < replica.serves_from) {
    return absl::UnavailableError(absl::StrCat(
        "partition ", replica.index, " waits until its previous primary can no longer serve"));
  }
  return absl::OkStatus();
}

absl::Status DataPlane::CheckTakesChanges(Replica& replica, uint64_t epoch) const {
  PAWL_RETURN_IF_ERROR(CheckServes(replica, epoch));
  return HasStarted() ? absl::OkStatus() : CheckLease(replica);
}

bool DataPlane::HasStarted() const {
  if (!started_ && (membership_ == nullptr || membership_->HasStarted())) started_ = true;
  return started_;
}

absl::Status DataPlane::CheckLease(Replica& replica) const {
  if (membership_ == nullptr) return absl::OkStatus();
  const MonotonicTime now = clock_.LeaseNow();
  MonotonicTime until = MonotonicTime::max();
  for (const Follower& follower : replica.followers) {
    if (follower.is_synchronous)
      until = std::min(until, replicator_->PromisedUntil(follower.node, follower.incarnation));
  }
  // Otherwise only a synchronous follower can become the primary, once that is confirmed.
  if (replica.unconfirmed_since != 0 || !HasStarted()) until = MonotonicTime::min();
  if (now < until || now < membership_->LeaseUntil()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("partition ", replica.index,
                   ": this server's lease has expired, and another server may be the primary"));
}

absl::Status DataPlane::Change(const std::shared_ptr<Replica>& replica, ChangeView& change,
                               const ChangeMemory& memory,
                               absl::FunctionRef<absl::Status(Partition&)> apply,
                               Changes& changes) {
  const uint64_t before = replica->partition->log_index();
  PAWL_RETURN_IF_ERROR(replica->partition->SetTerm(replica->primary_since));
  PAWL_RETURN_IF_ERROR(apply(*replica->partition));
  if (replica->partition->log_index() != before) {
    Record(*replica, change, memory);
    TakeCutIfDue(replica);
    replica->TakeReady(changes.ready);
  }
  if (changes.marks.empty() || changes.marks.back().replica != replica)
    changes.marks.emplace_back();
  changes.marks.back() = MarkOf(replica);
  return absl::OkStatus();
}

void DataPlane::ChangeMany(HelperThreads* helpers, size_t count,
                           std::function<absl::Status(size_t, Changes&)> one,
                           std::optional<CallContext> context, Done done) {
  struct Work {
    std::function<absl::Status(size_t, Changes&)> one;
    // Indexed by i.
    std::vector<absl::Status> statuses;
    std::vector<std::vector<ChangeMark>> marks;
    std::atomic<bool> failed{false};
  };
  const auto work = std::make_shared<Work>();
  work->one = std::move(one);
  work->statuses.resize(count);
  work->marks.resize(count);
  ShareWork(
      helpers, count,
      [this, work](size_t i) {
        Changes changes;
        if (work->failed) return changes.ready;
        work->statuses[i] = work->one(i, changes);
        work->marks[i] = std::move(changes.marks);
        if (!work->statuses[i].ok()) work->failed = true;
        // Let followers start while the rest is applied.
        if (replicator_ != nullptr && (i + 1) % kMinPartitionsPerThread == 0)
          replicator_->PumpStreams();
        return std::move(changes.ready);
      },
      [this, work, context = std::move(context), done = std::move(done)]() mutable {
        SendChanges();
        std::vector<ChangeMark> marks;
        for (size_t i = 0; i < work->marks.size(); ++i) {
          if (!work->statuses[i].ok()) return done(std::move(work->statuses[i]));
          marks.insert(marks.end(), work->marks[i].begin(), work->marks[i].end());
        }
        if (!context.has_value()) {
          context.emplace();
          context->deadline = clock_.Now() + options_.control_deadline;
        }
        waiting_.ForCommit(marks, *std::move(context), std::move(done));
      });
}

void DataPlane::SendChanges() {
  if (log_ != nullptr) log_->WriteQueued();
  if (replicator_ != nullptr) replicator_->PumpStreams();
}

void DataPlane::Record(Replica& replica, ChangeView& change, const ChangeMemory& memory) {
  const bool has_followers = !replica.followers.empty();
  if (log_ == nullptr && !has_followers && !is_replicated_) return;
  change.index = replica.partition->log_index();
  change.partition = replica.index;
  change.term = replica.primary_since;
  OutgoingMessage entry = EncodeLogEntry(change, memory.owner);
  if (has_followers || is_replicated_) {
    const bool is_large = memory.owner != nullptr;
    tail_.Add(is_large ? memory.owner.get() : entry.owner.get(),
              is_large ? memory.bytes : entry.bytes.size(),
              {replica.index, change.index, entry.bytes, entry.owner});
  }
  if (memory.reservation != nullptr)
    entry.owner = ByteReservation::Owner(std::move(entry.owner), memory.reservation);
  if (has_followers)
    replica.SendToFollowers({replica.index, change.index, entry.bytes, entry.owner});
  if (log_ != nullptr) {
    log_->Append(replica.index, change.index, change.term, std::move(entry.bytes),
                 std::move(entry.owner));
  }
}

void DataPlane::Handle(Method method, IncomingMessage request, CallContext context, Reply reply) {
  switch (method) {
    case Method::kPush:
      return Push(std::move(request), std::move(context), std::move(reply));
    case Method::kPull:
      return Pull(std::move(request), std::move(context), std::move(reply));
    case Method::kScan:
      return Scan(std::move(request), std::move(reply));
    case Method::kEndStep:
      return EndStep(std::move(request), std::move(context), std::move(reply));
    case Method::kTakeOver:
      return TakeOver(std::move(request), std::move(context), std::move(reply));
    case Method::kReplicate:
      return receiver_.Replicate(std::move(request), std::move(context), std::move(reply));
    case Method::kInstallSnapshot:
      return receiver_.InstallSnapshot(std::move(request), std::move(context), std::move(reply));
    case Method::kGoBack:
      return receiver_.GoBack(std::move(request), std::move(context), std::move(reply));
  }
}

absl::Status DataPlane::NoSuchTable(uint32_t table) {
  return absl::NotFoundError(
      absl::StrCat("there is no table with id ", table, "; create it through the scheduler first"));
}

absl::Status DataPlane::TooManyBytesInFlight() const {
  return WithPushback(absl::ResourceExhaustedError(
      absl::StrCat("more than ", options_.max_bytes_in_flight, " bytes are in flight")));
}

absl::Status DataPlane::CheckLogHasRoom(uint64_t bytes) const {
  if (log_ == nullptr) return absl::OkStatus();
  const absl::Status status = log_->CheckRoom(bytes);
  return status.ok() ? status : WithPushback(status);
}

void DataPlane::Refuse(Method method, const RequestHeader* header, absl::Status status,
                       Reply& reply) {
  const bool routing_moved = status.GetPayload(kRoutingPayloadUrl).has_value();
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kFailedPrecondition: {
      if (routing_moved) break;
      const uint64_t refused = requests_refused_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (refused <= kRefusalsLogged || refused % kRefusalLogInterval == 0) {
        spdlog::warn("refused {} of {}: {} (refusal {})", FullName(method),
                     header == nullptr ? "an unknown sender" : DescribeSender(*header),
                     status.ToString(), refused);
      }
      break;
    }
    default:
      break;
  }
  reply(std::move(status), OutgoingMessage());
}

void DataPlane::Tick() {
  waiting_.Expire(replica_map_.view()->replicas);
  receiver_.Tick();
  EndHandovers();
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
  if (membership_ == nullptr) return false;
  MutexLock lock(closed_mu_);
  return clock_.LeaseNow() + lease_ / 2 > membership_->LeaseUntil();
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
