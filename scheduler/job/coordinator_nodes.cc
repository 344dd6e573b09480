// Nodes that join, report and go, and what follows for the placement.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/rpc/version.h"
#include "client_lib/security/ticket.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "scheduler/membership/registration_check.h"
#include "spdlog/spdlog.h"

namespace pawl {

void Coordinator::AddTickets(const RegisterRequest& request, const Node& node, bool is_new,
                             RegisterResponse& response) const {
  if (!options_.gives_tickets) return;
  response.set_node_ticket(MakeNodeTicket(ticket_key_, node.name, node.incarnation));
  switch (node.role) {
    case SERVER_ROLE:
      response.set_ticket_key(ticket_key_);
      break;
    case CLIENT_ROLE:
      response.set_ticket(
          MakeTicket(ticket_key_, TicketSender::kClient, node.number, node.incarnation));
      break;
    default:
      // A repeated registration may name other ranks than the node has.
      for (const uint32_t rank : request.logical_workers()) {
        if (!is_new && (rank >= ranks_.total() || ranks_.HostOf(rank) != node.name)) continue;
        LogicalWorkerAssignment& own = *response.add_logical_workers();
        own.set_rank(rank);
        own.set_incarnation(node.incarnation);
        own.set_ticket(MakeTicket(ticket_key_, TicketSender::kRank, rank, node.incarnation));
      }
  }
}

absl::Status Coordinator::CheckRegister(const RegisterRequest& request) {
  if (request.that_job_only() && request.job_id() == options_.job_id && state_.ended()) {
    // Other nodes may wait here for the next job, which the next scheduler directs.
    absl::Status ended = absl::OutOfRangeError(state_.CheckNotEnded().message());
    if (state_.state() == FAILED) ended.SetPayload(kPushbackPayloadUrl, absl::Cord(kNeverAgain));
    return ended;
  }
  PAWL_RETURN_IF_ERROR(state_.CheckNotEnded());
  if (request.that_job_only() && request.job_id() != options_.job_id) {
    return absl::NotFoundError(absl::StrCat("the job of this scheduler is '", options_.job.name(),
                                            "' (", options_.job_id, "), not ", request.job_id()));
  }
  if (static_cast<uint32_t>(request.logical_workers_size()) > ranks_.total()) {
    return absl::InvalidArgumentError(absl::StrCat("logical_workers has ",
                                                   request.logical_workers_size(),
                                                   " ranks; the job has ", ranks_.total()));
  }
  PAWL_RETURN_IF_ERROR(CheckWorkerProtocol(request, options_.job));
  const Node* const before = membership_.FindReturning(request);
  if (before != nullptr && !before->gone && IsRepeated(request, *before)) return absl::OkStatus();
  if (request.role() == WORKER_ROLE)
    PAWL_RETURN_IF_ERROR(ranks_.CheckJoin(request, before == nullptr ? "" : before->name));
  if (request.data_damaged() && before != nullptr && before->role == SERVER_ROLE && !pristine()) {
    return director_.CheckReturnsWithoutData(*before, request.process_nonce(), ServersHeardFrom(),
                                             running_.Now());
  }
  return absl::OkStatus();
}

RegisterResponse Coordinator::ResponseTo(const RegisterRequest& request, const Node& node,
                                         bool is_new) const {
  RegisterResponse response;
  response.set_node(node.name);
  response.set_incarnation(node.incarnation);
  response.set_job_id(options_.job_id);
  *response.mutable_job() = options_.job;
  response.set_heartbeat_interval_ms(static_cast<uint32_t>(options_.heartbeat_interval.count()));
  // The answer leaves once the state, with the longest lease, is saved.
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_version(kVersion);
  // Exists: Membership::Register has checked it.
  response.set_protocol(
      *CommonProtocol({request.oldest_protocol(), request.newest_protocol()}, node.name));
  response.set_longest_lease_ms(static_cast<uint32_t>(longest_lease_.count()));
  const std::chrono::milliseconds patience =
      std::max({options_.start_timeout, options_.worker_return_timeout, options_.recovery_timeout});
  response.set_stall_timeout_ms(static_cast<uint32_t>(
      std::clamp<int64_t>(patience.count(), 0, std::numeric_limits<uint32_t>::max())));
  if (node.role == CLIENT_ROLE) response.set_client(node.number);
  AddTickets(request, node, is_new, response);
  return response;
}

Ticket Coordinator::Register(const RegisterRequest& request, Done<RegisterResponse> done) {
  return RegisterAs(request, /*only_reads=*/false, std::move(done));
}

Ticket Coordinator::RegisterReader(const RegisterRequest& request, Done<RegisterResponse> done) {
  return RegisterAs(request, /*only_reads=*/true, std::move(done));
}

Ticket Coordinator::RegisterAs(const RegisterRequest& request, bool only_reads,
                               Done<RegisterResponse> done) {
  Rpc<RegisterResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (absl::Status status = CheckRegister(request); !status.ok())
    return rpc.Answer(std::move(status));
  const absl::StatusOr<Membership::Registration> registration =
      membership_.Register(request, running_.Now(), only_reads);
  if (!registration.ok()) return rpc.Answer(registration.status());
  const Node& node = *registration->node;
  rpc.Answer(ResponseTo(request, node, registration->is_new));
  if (!registration->is_new) return 0;

  gate_.OnChange();
  if (registration->former.has_value()) {
    OnNodesGone({*registration->former}, {"was restarted"}, /*dead=*/true, rpc.actions());
  }
  spdlog::info("node {}: {} incarnation {}", registration->returned ? "came back" : "joined",
               NodeText(node), node.incarnation);
  if (!request.version().empty() && request.version() != kVersion) {
    spdlog::warn("{} runs Pawl {}, this scheduler runs {}", node.name, request.version(), kVersion);
  }
  if (node.role != CLIENT_ROLE) {
    events_.Add(registration->returned ? NODE_RETURNED : NODE_JOINED, node.name, NodeText(node));
  }
  if (node.role == SERVER_ROLE) OnServerJoined(node, request, rpc.actions());
  if (node.role == WORKER_ROLE) {
    ranks_.Join(request, node);
    PlaceRanks(rpc.actions());
  }
  MaybeStartJob();
  return 0;
}

void Coordinator::OnServerJoined(const Node& server, const RegisterRequest& request,
                                 DeferredActions& actions) {
  if (!director_.placed() || state_.ended()) return;
  std::vector<uint32_t> recovered;
  for (const RecoveredReplica& replica : request.recovered())
    recovered.push_back(replica.partition());
  const std::optional<std::string> loss =
      director_.OnServerJoined(server, std::move(recovered), pristine());
  OnPlacementChanged(actions);
  MaybeFail(loss, actions);
  // Its partitions may start again without the ranks that were released before.
  if (!loss.has_value() && pristine()) ReleaseOnServers(ranks_.RanksToRelease(), actions);
}

absl::StatusOr<HeartbeatResponse> Coordinator::Heartbeat(const HeartbeatRequest& request) {
  Section section(*this);
  if (options_.leads != nullptr && !options_.leads()) {
    return absl::UnavailableError("this scheduler cannot tell whether it still directs the job");
  }
  const Node* const known = membership_.FindByName(request.node());
  const bool was_draining = known != nullptr && known->draining;
  const uint64_t had_adopted = known == nullptr ? 0 : known->adopted_epoch;
  const bool could_write = known != nullptr && known->disk_failure.empty();
  const uint64_t published = published_.routing == nullptr ? 0 : published_.routing->epoch();
  const absl::StatusOr<Node*> found = membership_.Heartbeat(request, published, running_.Now());
  const bool end_is_published = published_.state == state_.state() && state_.ended();
  // A server gets no answer that renews its lease: it registers again, and hears of the end then.
  if (absl::IsAborted(found.status()) && end_is_published && known != nullptr &&
      known->role != SERVER_ROLE && request.job_id() == options_.job_id) {
    HeartbeatResponse end;
    end.set_job_state(published_.state);
    end.set_failure(published_.reason);
    return end;
  }
  if (absl::IsAborted(found.status()) && !gate_.all_saved()) {
    // In the saved state, from which another scheduler may continue, that incarnation may be alive.
    return absl::UnavailableError("the scheduler's state is being saved");
  }
  PAWL_RETURN_IF_ERROR(found.status());
  const Node* const node = *found;
  // A scheduler that continues a job that has ended publishes no routing.
  if (node->role == SERVER_ROLE && request.routing_epoch() > published && !state_.ended() &&
      options_.state_is_outdated != nullptr) {
    options_.state_is_outdated(absl::StrCat(NodeText(*node), " acts by routing epoch ",
                                            request.routing_epoch(),
                                            ", and the newest of this state is ", published));
  }
  ranks_.NoteProgress(node->progress);
  if (node->role == WORKER_ROLE && node->refused_progress.empty()) metrics_.Note(request.worker());
  if (!node->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*node), ": ", node->progress.failure()), section.actions());
  }
  if (node->role == SERVER_ROLE && !director_.placed() && !state_.ended()) {
    MaybePlaceServers(section.actions());
    MaybeStartJob();
  }
  if (node->role == SERVER_ROLE && director_.placed() && !state_.ended()) {
    replan_ = replan_ || node->draining != was_draining || node->adopted_epoch != had_adopted ||
              node->disk_failure.empty() != could_write;
    if (director_.OnFigures(*node, request, running_.Now())) gate_.OnChange();
    bool changed = director_.OnLearnersCaughtUp(*node, request, membership_);
    changed = director_.DropSilent(*node, request, membership_, running_.Now()) || changed;
    if (changed) OnPlacementChanged(section.actions());
  }
  if (node->draining && !was_draining) {
    events_.Add(NODE_DRAINING, node->name, "it was told to end");
    gate_.OnChange();
  }
  HeartbeatResponse response;
  // Only once that is saved, so that the next scheduler knows of it too.
  response.set_drain(node->leave_requested && gate_.IsSaved(leave_change_));
  response.set_lease_ms(static_cast<uint32_t>(LeaseToGive().count()));
  response.set_routing_epoch(published);
  response.set_job_state(published_.state);
  response.set_failure(published_.reason);
  response.set_challenge(node->claimant);
  if (!started_change_.has_value() && director_.placed() && !pristine())
    started_change_ = gate_.change();
  response.set_job_started(started_change_.has_value() && gate_.IsSaved(*started_change_));
  return response;
}

Ticket Coordinator::Goodbye(const GoodbyeRequest& request, Done<GoodbyeResponse> done) {
  Rpc<GoodbyeResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  const absl::StatusOr<Node*> found = membership_.Find(request.node(), request.incarnation());
  std::optional<Node> leaving;
  if (found.ok()) leaving = **found;
  const absl::Status left = membership_.Leave(request.node(), request.incarnation());
  rpc.Answer(left.ok() ? absl::StatusOr<GoodbyeResponse>(GoodbyeResponse()) : left);
  if (left.ok() && leaving.has_value()) {
    spdlog::info("node left: {}", NodeText(*leaving));
    OnNodesGone({*leaving},
                {absl::StrCat("left while the job was ", JobState_Name(state_.state()))},
                /*dead=*/false, rpc.actions());
    PlaceRanks(rpc.actions());
  }
  return 0;
}

void Coordinator::OnNodesGone(const std::vector<Node>& nodes, const std::vector<std::string>& how,
                              bool dead, DeferredActions& actions) {
  if (nodes.empty()) return;
  gate_.OnChange();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].role != CLIENT_ROLE)
      events_.Add(dead ? NODE_DIED : NODE_LEFT, nodes[i].name, how[i]);
  }
  if (state_.ended()) return;
  std::vector<Node> servers;
  std::vector<std::string> how_servers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    for (const Barriers::Failure& failure : barriers_.FailNode(node.name, how[i])) {
      spdlog::warn("{}", failure.status.ToString());
      pending_.barriers.AnswerIf(
          [&](const PendingRpcs::BarrierParty& party) { return party.barrier == failure.key; },
          failure.status, actions);
    }
    if (node.role == WORKER_ROLE) OnWorkerGone(node, how[i], dead, actions);
    if (node.role != SERVER_ROLE) continue;
    servers.push_back(node);
    how_servers.push_back(how[i]);
  }
  // All at once: any server of those that died together may be the first to return.
  if (!servers.empty() && director_.placed()) {
    const std::optional<std::string> loss =
        director_.OnServersGone(servers, how_servers, dead, pristine(), running_.Now());
    // Even if the placement is the same: the routing table lists the servers that are present.
    OnPlacementChanged(actions);
    MaybeFail(loss, actions);
  }
  // After the placement, which must not name nodes that are gone; and not in the next tick, by when
  // a restarted worker has its ranks again.
  MaybeFail(ranks_.CheckReturn(running_.Now(), options_.worker_return_timeout), actions);
}

void Coordinator::OnWorkerGone(const Node& worker, const std::string& how, bool dead,
                               DeferredActions& actions) {
  ForgetReader(worker.name);
  const std::vector<FreeRank> ranks = ranks_.Leave(worker, how, dead, running_.Now());
  OnRanksFreed(ranks);
  std::vector<FreeRank> released = ranks_.RanksToRelease();
  // Finished ranks too: their host may have been restarted and have taken them over again.
  std::erase_if(released, [&](const FreeRank& rank) PAWL_REQUIRES(mu_) {
    return ranks_.LastHostOf(rank.rank) != worker.name;
  });
  ReleaseOnServers(released, actions);
  pending_.assignments.AnswerIf(
      [&](const PendingRpcs::AssignmentWanted& wanted) { return wanted.worker == worker.name; },
      absl::AbortedError(absl::StrCat(worker.name, " ", how)), actions);
  group_.OnWorkerGone(worker.name, how, actions);
  UpdateGroup(actions);
}

void Coordinator::MaybeFail(const std::optional<std::string>& loss, DeferredActions& actions) {
  if (loss.has_value()) FailJob(*loss, actions);
}

std::vector<const Node*> Coordinator::ServersHeardFrom() const {
  std::vector<const Node*> servers = membership_.Present(SERVER_ROLE);
  std::erase_if(servers, [](const Node* server) { return !server->has_sent_heartbeat; });
  return servers;
}

void Coordinator::MaybePlaceServers(DeferredActions& actions) {
  // Resume follows, which would ask the servers a second time.
  if (resumes_) return;
  std::vector<const Node*> servers = ServersHeardFrom();
  std::erase_if(servers, [](const Node* server) { return server->draining; });
  if (servers.empty() || servers.size() < scale_.servers()) return;
  // A partition is loaded into one replica, from which the others are copied afterwards.
  director_.PlaceFirst(servers, loading() ? 1 : options_.job.replicas());
  OnPlacementChanged(actions);
  if (loading()) {
    LoadOnServers(actions);
  } else {
    PrepareServers(/*all_tables=*/true, actions);
  }
}

void Coordinator::OnRoutingAdopted(const std::string& name, uint64_t incarnation, uint64_t epoch,
                                   DeferredActions& actions) {
  if (name.empty() || published_.routing == nullptr || epoch > published_.routing->epoch()) return;
  const absl::StatusOr<Node*> found = membership_.Find(name, incarnation);
  if (!found.ok() || (*found)->role != SERVER_ROLE || (*found)->adopted_epoch >= epoch) return;
  (*found)->adopted_epoch = epoch;
  (*found)->adopted_at = running_.Now();
  // Other servers may wait for this before they delete retained replicas.
  replan_ = true;
  // First the cheap check: every server comes here with every routing.
  if (state_.ended() || !director_.handing_over()) return;
  if (!director_.CompleteHandovers(membership_.Present(SERVER_ROLE))) return;
  OnPlacementChanged(actions);
}

void Coordinator::OnPlacementChanged(DeferredActions& actions) {
  routings_.OnPlacementChanged();
  gate_.OnChange();
  replan_ = true;
  const uint64_t since = director_.primaries_since();
  if (since == targets_since_) return;
  targets_since_ = since;
  if (!director_.HasAllPrimaries()) {
    rounds_.SetTargets(std::nullopt, running_.Now(), actions);
    return;
  }
  const RoutingTable& routing = *routings_.Newest(director_.placement(), membership_);
  std::vector<bool> is_primary(routing.servers_size());
  for (const uint32_t server : routing.primary()) is_primary[server] = true;
  ServerRounds::Targets targets;
  targets.epoch = routing.epoch();
  for (int i = 0; i < routing.servers_size(); ++i) {
    if (is_primary[i])
      targets.servers.push_back({routing.servers(i).node(), routing.servers(i).address()});
  }
  rounds_.SetTargets(std::move(targets), running_.Now(), actions);
}

void Coordinator::MaybeStartJob() {
  if (!servers_ready() || !(serve_only_ || ranks_.AllHosted())) return;
  const JobState from = state_.state();
  if (!state_.Start(clock_.Now())) return;
  gate_.OnChange();
  LogState(from);
}

}  // namespace pawl
