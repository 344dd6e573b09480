#include "server/server_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/retry.h"
#include "server/shard/partition_options.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How long a server that is asked to end waits for its routing.
constexpr std::chrono::milliseconds kRoutingGrace{500};
// A scheduler that has lost its state, or has been away for long, registers all servers again. The
// others register within one heartbeat interval and one pause (kMaxBackoff). Until then the routing
// may name this server alone, and a replica that is in sync on others too may be primary here.
constexpr std::chrono::seconds kPeersReturn{3};
// Pauses after the scheduler refuses or misses a confirmation. They grow, because a partition can
// lack in-sync replicas for as long as a server is away.
constexpr std::chrono::milliseconds kFirstConfirmationPause{50};
constexpr std::chrono::seconds kLongestConfirmationPause{1};

}  // namespace

ServerNode::ServerNode(ServerNodeOptions options, const DataPlaneOptions& data_plane,
                       std::unique_ptr<DurableLog> log, ControlChannel& channel, Transport& peers,
                       const Clock& clock, ControlChannel* routing_channel)
    : options_(std::move(options)),
      data_plane_options_(data_plane),
      clock_(clock),
      link_(channel, clock, options_.scheduler, Events(), routing_channel),
      data_plane_(data_plane, clock, &peers, this),
      log_(std::move(log)) {}

ServerNode::~ServerNode() { Close(); }

NodeLink::Events ServerNode::Events() {
  NodeLink::Events events;
  events.fill_heartbeat = [this](HeartbeatRequest& request) {
    data_plane_.FillHeartbeat(request);
    if (options_.security) *request.mutable_security() = options_.security();
    if (log_ != nullptr) {
      const DurableLog::ScrubFigures figures = log_->scrub_figures();
      request.mutable_server()->set_files_damaged(figures.damaged);
      request.mutable_server()->set_files_repaired(figures.repaired);
    }
    MutexLock lock(mu_);
    request.set_draining(draining_);
  };
  events.routing = [this](const RoutingTable& routing) {
    data_plane_.AdoptRouting(routing);
    if (data_plane_.IsRouted()) routed_ = true;
    ConfirmRouting();
  };
  events.acts_by_routing = [this] { return !data_plane_.IsYielding(); };
  events.job_state = [this](JobState state, const std::string& failure) {
    MutexLock lock(mu_);
    news_.job_state = state;
    news_.failure = failure;
  };
  events.leave_requested = [this] {
    MutexLock lock(mu_);
    news_.leave_requested = true;
  };
  events.disowned = [this](const absl::Status& why) {
    MutexLock lock(mu_);
    news_.disowned = why;
  };
  return events;
}

void ServerNode::ConfirmRouting() {
  const uint64_t epoch = data_plane_.EpochToConfirm();
  if (epoch == 0) return;
  {
    MutexLock lock(mu_);
    if (confirming_) return;
    // A confirmation refused for one routing may be granted for the next.
    if (epoch != epoch_refused_) refusals_ = 0;
    if (refusals_ > 0 && clock_.Now() < next_confirmation_) return;
    confirming_ = true;
  }
  const bool sent = link_.ConfirmRouting(epoch, [this, epoch](const absl::Status& status) {
    if (status.ok()) data_plane_.OnConfirmed(epoch);
    {
      MutexLock lock(mu_);
      confirming_ = false;
      if (!status.ok()) {
        epoch_refused_ = epoch;
        next_confirmation_ = clock_.Now() + GrowingPause(++refusals_, kFirstConfirmationPause,
                                                         kLongestConfirmationPause);
      }
    }
    // A newer routing may have arrived meanwhile.
    if (status.ok()) ConfirmRouting();
  });
  if (sent) return;
  MutexLock lock(mu_);
  confirming_ = false;
}

MonotonicTime ServerNode::LeaseUntil() const {
  // Read in this order: a lease of the next incarnation comes after its `routed_`.
  const MonotonicTime until = link_.lease_until();
  return routed_ ? until : MonotonicTime::min();
}

bool ServerNode::HasStarted() const {
  // Read in this order, as in LeaseUntil.
  return link_.job_started() && routed_;
}

absl::Status ServerNode::Start(const std::string& address) {
  address_ = address;
  if (log_ != nullptr && log_->identity().has_value()) {
    const NodeIdentity& identity = *log_->identity();
    node_ = identity.node();
    auto recovered = log_->Recover(
        PartitionOptionsOf(identity.job(), data_plane_options_.max_rows_per_partition));
    if (absl::IsDataLoss(recovered.status()) && identity.job().replicas() > 1) {
      damage_ = recovered.status();
      spdlog::error("{}; asking the scheduler whether other servers have the data of {}",
                    std::string(damage_.message()), node_);
    } else {
      PAWL_RETURN_IF_ERROR(recovered.status());
      recovered_ = *std::move(recovered);
      spdlog::info("recovered {} partitions of job '{}' as {}", recovered_.size(),
                   identity.job().name(), node_);
    }
  }
  Register(clock_.Now() + options_.register_timeout);
  return absl::OkStatus();
}

void ServerNode::Register(MonotonicTime deadline) {
  member_ = false;
  routed_ = false;
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  request.set_address(address_);
  request.set_description(options_.description);
  request.set_zone(options_.zone);
  request.set_node(node_);
  request.set_job_id(job_id_);
  if (log_ != nullptr && log_->identity().has_value())
    request.set_start_count(log_->identity()->life());
  if (job_id_ == 0 && !node_.empty()) {
    request.set_job_id(log_->identity()->job_id());
    request.set_data_damaged(!damage_.ok());
    for (const auto& partition : recovered_) {
      RecoveredReplica& replica = *request.add_recovered();
      replica.set_partition(partition->index());
      replica.set_log_index(partition->log_index());
      replica.set_term(partition->terms().TermOf(partition->log_index()));
    }
  }
  if (std::optional<HeldJob> held = data_plane_.Held(); job_id_ != 0 && held.has_value()) {
    *held->mutable_job() = job_;
    held->set_longest_lease_ms(longest_lease_ms_);
    held->set_ticket_key(ticket_key_);
    *request.mutable_held_job() = *std::move(held);
  }
  // The data that this server holds is useless to another job.
  request.set_that_job_only(job_id_ != 0 || MustKeepItsJob());
  for (RecoveredReplica& replica : data_plane_.ReplicasWithData())
    *request.add_recovered() = std::move(replica);
  link_.Register(std::move(request), deadline, [this](absl::StatusOr<RegisterResponse> registered) {
    MutexLock lock(mu_);
    news_.registered = std::move(registered);
  });
  // Confirmations that were asked for until now are no longer answered.
  MutexLock lock(mu_);
  confirming_ = false;
  refusals_ = 0;
}

absl::Status ServerNode::Join(const RegisterResponse& registration) {
  spdlog::info("registered as {}, incarnation {}, for job '{}'", registration.node(),
               registration.incarnation(), registration.job().name());
  const bool first = job_id_ == 0;
  if (!first) expects_peers_until_ = clock_.Now() + kPeersReturn;
  if (!first && registration.job_id() != job_id_) {
    return absl::AbortedError(absl::StrCat("the scheduler at ", options_.scheduler,
                                           " now directs another job, '", registration.job().name(),
                                           "'"));
  }
  if (first) PAWL_RETURN_IF_ERROR(PrepareLog(registration));
  data_plane_.Begin(registration);
  for (auto& partition : recovered_) data_plane_.AddRecovered(std::move(partition));
  recovered_.clear();
  node_ = registration.node();
  job_id_ = registration.job_id();
  job_ = registration.job();
  ticket_key_ = registration.ticket_key();
  longest_lease_ms_ =
      std::max({longest_lease_ms_, registration.lease_ms(), registration.longest_lease_ms()});
  member_ = true;
  link_.Start();
  return absl::OkStatus();
}

absl::Status ServerNode::RefuseToDiscard(absl::string_view scheduler_says) const {
  const NodeIdentity& identity = *log_->identity();
  return absl::InvalidArgumentError(absl::StrCat(
      "--data_dir holds data of ", identity.node(), " in job '", identity.job().name(), "' (",
      identity.job_id(), "), which is not known to have ended, and with the scheduler at ",
      options_.scheduler, ", ", scheduler_says,
      ". Check --scheduler, and that the scheduler was started with its own --data_dir or --store. "
      "To start over, use another --data_dir, or discard the data in this one with "
      "--discard_other_job"));
}

absl::Status ServerNode::PrepareLog(const RegisterResponse& registration) {
  const bool logs = registration.job().durability() != MEMORY;
  if (log_ == nullptr) {
    if (!logs) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--data_dir=FOLDER is missing: job '", registration.job().name(), "' has durability ",
        Durability_Name(registration.job().durability()), ", so its servers write a log"));
  }
  const bool is_earlier = log_->identity().has_value() &&
                          log_->identity()->job_id() == registration.job_id() &&
                          log_->identity()->node() == registration.node();
  if (!is_earlier) {
    if (MustKeepItsJob()) {
      return RefuseToDiscard(absl::StrCat("the scheduler's job is '", registration.job().name(),
                                          "' (", registration.job_id(),
                                          "), in which this server is ", registration.node()));
    }
    recovered_.clear();
    NodeIdentity identity;
    identity.set_node(registration.node());
    identity.set_job_id(registration.job_id());
    *identity.mutable_job() = registration.job();
    PAWL_RETURN_IF_ERROR(log_->Initialize(std::move(identity)));
  } else if (!damage_.ok()) {
    PAWL_RETURN_IF_ERROR(log_->SetDamagedFilesAside());
  }
  damage_ = absl::OkStatus();
  if (!logs) return absl::OkStatus();
  data_plane_.SetLog(*log_);
  return log_->Start(data_plane_, PartitionOptionsOf(registration.job(),
                                                     data_plane_options_.max_rows_per_partition));
}

std::optional<absl::Status> ServerNode::Tick() {
  data_plane_.Tick();
  // A routing may have arrived from a peer, or a confirmation may have been refused.
  if (member_) ConfirmRouting();
  News news;
  {
    MutexLock lock(mu_);
    news = news_;
    news_.registered.reset();
    news_.disowned.reset();
  }
  if (news.registered.has_value()) {
    if (const absl::Status& status = news.registered->status(); !status.ok()) {
      if (absl::IsOutOfRange(status)) {
        // The job ended while this server was away. The pushback says that it failed.
        job_has_ended_ = true;
        if (IsFinal(status)) return absl::FailedPreconditionError(status.message());
        return absl::CancelledError(status.message());
      }
      if (job_id_ == 0 && absl::IsNotFound(status) && MustKeepItsJob())
        return RefuseToDiscard(status.message());
      // Registering again would not help; it would only fight with the other process.
      if (absl::IsAborted(status) || IsFinal(status))
        return absl::InvalidArgumentError(absl::StrCat("--data_dir: ", status.message()));
      if (!damage_.ok() && IsTransientError(status)) {
        return absl::UnavailableError(absl::StrCat(damage_.message(), "; ", status.message()));
      }
      return status;
    }
    if (absl::Status status = Join(**news.registered); !status.ok()) return status;
  }
  if (auto end = JobEnd(news); end.has_value()) {
    job_has_ended_ = true;
    return end;
  }
  if (news.disowned.has_value()) {
    spdlog::warn("the scheduler declared this server dead ({}); registering again",
                 std::string(news.disowned->message()));
    Register(MonotonicTime::max());
  }
  const MonotonicTime now = clock_.Now();
  if (now - last_tick_ >= kLateWatch) resumed_ = now;
  last_tick_ = now;
  if (job_id_ != 0 && std::min(link_.silence(), now - resumed_) > options_.scheduler_timeout) {
    return absl::UnavailableError(absl::StrCat("the scheduler at ", options_.scheduler,
                                               " has been silent for ",
                                               options_.scheduler_timeout.count(), " s"));
  }
  if (news.leave_requested && !draining_since_.has_value()) {
    spdlog::info("the scheduler asked this server to leave");
    DrainUntil(MonotonicTime::max());
  }
  return DrainEnd();
}

std::optional<absl::Status> ServerNode::JobEnd(const News& news) const {
  switch (news.job_state) {
    case COMPLETED:
      return absl::OkStatus();
    case STOPPED:
      return absl::CancelledError("the job was stopped");
    case FAILED:
      return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", news.failure));
    default:
      return std::nullopt;
  }
}

void ServerNode::Drain() {
  const MonotonicTime until = clock_.Now() + options_.drain_timeout;
  if (!drain_until_.has_value() || until < *drain_until_) DrainUntil(until);
  data_plane_.LiftRepairLimit();
}

void ServerNode::DrainUntil(MonotonicTime until) {
  drain_until_ = until;
  if (!draining_since_.has_value()) draining_since_ = clock_.Now();
  MutexLock lock(mu_);
  draining_ = true;
}

std::optional<absl::Status> ServerNode::DrainEnd() const {
  if (!drain_until_.has_value()) return std::nullopt;
  // The scheduler has made sure that other servers can take the replicas.
  const bool waits = *drain_until_ == MonotonicTime::max();
  const bool is_drained = data_plane_.IsDrained();
  if (!member_ || data_plane_.epoch() == 0) {
    if (job_id_ == 0 || (is_drained && !waits)) {
      // A routing that assigns replicas to this server may be on its way.
      return clock_.Now() < *draining_since_ + kRoutingGrace ? std::nullopt
                                                             : std::optional(absl::OkStatus());
    }
    // A server declared dead may hold the only copies: it must register again first, and then hand
    // them over.
  } else if (is_drained) {
    return absl::OkStatus();
  } else if (!waits && !data_plane_.HasPeers() && clock_.Now() >= expects_peers_until_) {
    spdlog::info("ending with all replicas: no other server can take them");
    return absl::OkStatus();
  }
  if (clock_.Now() < *drain_until_) return std::nullopt;
  spdlog::warn("ending with replicas that no server took over within {} s",
               options_.drain_timeout.count());
  return absl::OkStatus();
}

bool ServerNode::serving() const {
  return member_ && data_plane_.epoch() > 0 && !drain_until_.has_value();
}

void ServerNode::Close() {
  if (std::exchange(closed_, true)) return;
  data_plane_.Close(absl::UnavailableError("the server is ending"));
  link_.Close();
  if (log_ == nullptr) return;
  log_->Stop();
  if (!job_has_ended_) return;
  // Otherwise the next job would need --discard_other_job.
  if (const absl::Status status = log_->MarkJobEnded(); !status.ok()) {
    spdlog::warn("cannot record in --data_dir that its job has ended: {}", status.ToString());
  }
}

}  // namespace pawl
