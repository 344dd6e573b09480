// Nodes come, speak and go, and what follows for the placement and the ranks.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/version.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// "rank 3 is", "ranks 0, 1 are"
std::string RanksText(const std::vector<LogicalWorkers::FreeRank>& ranks) {
  const auto number = [](std::string* out, const LogicalWorkers::FreeRank& rank) {
    absl::StrAppend(out, rank.rank);
  };
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", ", number),
                      ranks.size() == 1 ? " is" : " are");
}

}  // namespace

Ticket Coordinator::Register(const RegisterRequest& request, Done<RegisterResponse> done) {
  Rpc<RegisterResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (request.that_job_only() && request.job_id() == options_.job_id &&
      (state_.state() == COMPLETED || state_.state() == STOPPED)) {
    // Others may be here for the next job, which this scheduler's successor directs.
    return rpc.Answer(absl::OutOfRangeError(state_.CheckNotOver().message()));
  }
  if (const absl::Status status = state_.CheckNotOver(); !status.ok()) return rpc.Answer(status);
  if (request.that_job_only() && request.job_id() != options_.job_id) {
    return rpc.Answer(
        absl::NotFoundError(absl::StrCat("the job of this scheduler is '", options_.job.name(),
                                         "' (", options_.job_id, "), not ", request.job_id())));
  }
  LogicalWorkers::Worker worker;
  worker.requested_ranks.assign(request.logical_workers().begin(), request.logical_workers().end());
  worker.follows = request.follows_assignment();
  const Node* const before = membership_.FindReturning(request);
  const bool repeated = before != nullptr && !before->gone && IsRepeated(request, *before);
  if (request.role() == WORKER_ROLE && !repeated) {
    if (before != nullptr) worker.name = before->name;
    const absl::Status status = logical_workers_.CheckRequestedRanks(worker);
    if (!status.ok()) return rpc.Answer(status);
  }
  const absl::StatusOr<Membership::Registration> registration =
      membership_.Register(request, running_.Now());
  if (!registration.ok()) return rpc.Answer(registration.status());
  const Node& node = *registration->node;

  RegisterResponse response;
  response.set_node(node.name);
  response.set_incarnation(node.incarnation);
  response.set_job_id(options_.job_id);
  *response.mutable_job() = options_.job;
  response.set_heartbeat_interval_ms(static_cast<uint32_t>(options_.heartbeat_interval.count()));
  // The answer goes out when the state is saved, and the longest lease with it.
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_version(kVersion);
  // One that the check of the request has found.
  response.set_protocol(
      *CommonProtocol({request.oldest_protocol(), request.newest_protocol()}, node.name));
  response.set_longest_lease_ms(static_cast<uint32_t>(longest_lease_.count()));
  const std::chrono::milliseconds patience =
      std::max({options_.start_timeout, options_.worker_return_timeout, options_.recovery_timeout});
  response.set_patience_ms(static_cast<uint32_t>(
      std::clamp<int64_t>(patience.count(), 0, std::numeric_limits<uint32_t>::max())));
  if (node.role == CLIENT_ROLE) response.set_client(node.number);
  rpc.Answer(response);
  if (!registration->is_new) return 0;

  gate_.Changed();
  if (registration->former.has_value()) {
    NodesAreGone({*registration->former}, {"was restarted"}, /*dead=*/true, rpc.actions());
  }
  spdlog::info("node {}: {} incarnation {}", registration->returned ? "came back" : "joined",
               NodeText(node), node.incarnation);
  if (!request.version().empty() && request.version() != kVersion) {
    spdlog::warn("{} is of Pawl {}, this scheduler of {}", node.name, request.version(), kVersion);
  }
  if (node.role != CLIENT_ROLE) {
    events_.Add(registration->returned ? NODE_RETURNED : NODE_JOINED, node.name, NodeText(node));
  }
  if (node.role == SERVER_ROLE && director_.placed() && !state_.over()) {
    std::vector<uint32_t> recovered;
    for (const RecoveredReplica& replica : request.recovered())
      recovered.push_back(replica.partition());
    const std::optional<std::string> loss =
        director_.OnServerJoined(node, std::move(recovered), nothing_yet());
    OnPlacementChanged(rpc.actions());
    if (loss.has_value()) {
      FailJob(*loss, rpc.actions());
    } else if (nothing_yet()) {
      // Its partitions may begin again, without the ranks that were released before.
      ReleaseOnServers(logical_workers_.FreeRanks(), rpc.actions());
    }
  }
  if (node.role == WORKER_ROLE) {
    worker.name = node.name;
    worker.incarnation = node.incarnation;
    logical_workers_.Join(worker);
    PlaceRanksOnWorkers(rpc.actions());
  }
  StartIfAllAreThere();
  return 0;
}

absl::StatusOr<HeartbeatResponse> Coordinator::Heartbeat(const HeartbeatRequest& request) {
  Section section(*this);
  if (options_.leads != nullptr && !options_.leads()) {
    return absl::UnavailableError("this scheduler does not know whether it still directs the job");
  }
  const Node* const known = membership_.FindByName(request.node());
  const bool was_draining = known != nullptr && known->draining;
  const uint64_t had_adopted = known == nullptr ? 0 : known->adopted_epoch;
  const bool could_write = known != nullptr && known->disk_failure.empty();
  const absl::StatusOr<Node*> found = membership_.Heartbeat(
      request, told_.routing == nullptr ? 0 : told_.routing->epoch(), running_.Now());
  if (absl::IsAborted(found.status()) && !gate_.all_saved()) {
    // A scheduler that goes on from what is saved may know that incarnation still.
    return absl::UnavailableError("the scheduler's state is being saved");
  }
  PAWL_RETURN_IF_ERROR(found.status());
  const Node* const node = *found;
  for (const RankProgress& progress : node->progress.ranks())
    logical_workers_.NoteProgress(progress);
  if (!node->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*node), ": ", node->progress.failure()), section.actions());
  }
  if (node->role == SERVER_ROLE && !director_.placed() && !state_.over()) {
    PlaceIfServersAreThere(section.actions());
    StartIfAllAreThere();
  }
  if (node->role == SERVER_ROLE && director_.placed() && !state_.over()) {
    replan_ = replan_ || node->draining != was_draining || node->adopted_epoch != had_adopted ||
              node->disk_failure.empty() != could_write;
    if (director_.OnFigures(*node, request, running_.Now())) gate_.Changed();
    bool changed = director_.OnLearnersCaughtUp(*node, request, membership_);
    changed = director_.DropSilent(*node, request, membership_, running_.Now()) || changed;
    if (changed) OnPlacementChanged(section.actions());
  }
  if (node->draining && !was_draining) {
    events_.Add(NODE_DRAINING, node->name, "it has been asked to end");
    gate_.Changed();
  }
  HeartbeatResponse response;
  // Not if a scheduler that goes on from what is saved would know nothing of it; the next heartbeat
  // comes soon.
  response.set_drain(node->told_to_leave && gate_.IsSaved(leave_change_));
  response.set_lease_ms(static_cast<uint32_t>(LeaseToGive().count()));
  response.set_routing_epoch(told_.routing == nullptr ? 0 : told_.routing->epoch());
  response.set_job_state(told_.state);
  response.set_failure(told_.reason);
  response.set_challenge(node->newcomer);
  if (!begun_change_.has_value() && director_.placed() && !nothing_yet())
    begun_change_ = gate_.change();
  response.set_begun(begun_change_.has_value() && gate_.IsSaved(*begun_change_));
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
    NodesAreGone({*leaving},
                 {absl::StrCat("left while the job was ", JobState_Name(state_.state()))},
                 /*dead=*/false, rpc.actions());
    PlaceRanksOnWorkers(rpc.actions());
  }
  return 0;
}

void Coordinator::NodesAreGone(const std::vector<Node>& nodes, const std::vector<std::string>& how,
                               bool dead, DeferredActions& actions) {
  if (nodes.empty()) return;
  gate_.Changed();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].role != CLIENT_ROLE)
      events_.Add(dead ? NODE_DIED : NODE_LEFT, nodes[i].name, how[i]);
  }
  if (state_.over()) return;
  std::vector<Node> servers;
  std::vector<std::string> how_servers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    for (const Barriers::Failure& failure : barriers_.FailNode(node.name, how[i])) {
      spdlog::warn("{}", failure.status.ToString());
      pending_.barriers.AnswerIf(
          [&](const PendingRpcs::BarrierParty& party) { return party.barrier == failure.name; },
          failure.status, actions);
    }
    if (node.role == WORKER_ROLE) WorkerIsGone(node, how[i], dead, actions);
    if (node.role != SERVER_ROLE) continue;
    servers.push_back(node);
    how_servers.push_back(how[i]);
  }
  // All at once: who died together may each be the one that comes back first.
  if (!servers.empty() && director_.placed()) {
    const std::optional<std::string> loss =
        director_.OnServersGone(servers, how_servers, dead, nothing_yet(), running_.Now());
    // The table is for those that are there; a restarted server is again.
    OnPlacementChanged(actions);
    if (loss.has_value()) FailJob(*loss, actions);
  }
  // Now that the placement names nobody who is gone; and at once, since a worker that was restarted
  // at once has its ranks again before the next tick.
  const std::optional<std::string> loss =
      logical_workers_.CheckReturn(running_.Now(), options_.worker_return_timeout);
  if (loss.has_value()) FailJob(*loss, actions);
}

void Coordinator::WorkerIsGone(const Node& worker, const std::string& how, bool dead,
                               DeferredActions& actions) {
  for (const RankProgress& progress : worker.progress.ranks())
    logical_workers_.NoteProgress(progress);
  const std::vector<LogicalWorkers::FreeRank> ranks =
      logical_workers_.Leave({worker.name, absl::StrCat(NodeText(worker), " ", how),
                              /*must_return=*/dead || !serve_only_, /*may_return=*/dead},
                             running_.Now());
  RanksAreFree(ranks);
  if (!ranks.empty()) spdlog::warn("{} {}; {} free", NodeText(worker), how, RanksText(ranks));
  ReleaseOnServers(ranks, actions);
  const absl::Status gone = absl::AbortedError(absl::StrCat(worker.name, " ", how));
  pending_.assignments.AnswerIf(
      [&](const PendingRpcs::AssignmentWanted& wanted) { return wanted.worker == worker.name; },
      gone, actions);
  pending_.joins.AnswerIf([&](const std::string& node) { return node == worker.name; }, gone,
                          actions);
  group_.OnNodeGone(worker.name, how);
  UpdateGroup(actions);
}

std::vector<const Node*> Coordinator::ServersHeardOf() const {
  std::vector<const Node*> servers = membership_.Present(SERVER_ROLE);
  servers.erase(std::remove_if(servers.begin(), servers.end(),
                               [](const Node* server) { return !server->heard_of; }),
                servers.end());
  return servers;
}

void Coordinator::RanksAreFree(const std::vector<LogicalWorkers::FreeRank>& ranks) {
  for (const LogicalWorkers::FreeRank& rank : ranks) evaluations_.Forget(rank.rank);
}

void Coordinator::PlaceRanksOnWorkers(DeferredActions& actions) {
  if (state_.over()) return;
  std::vector<std::string> before;
  for (uint32_t rank = 0; rank < logical_workers_.total(); ++rank)
    before.push_back(logical_workers_.HostOf(rank));
  const std::vector<std::string> changed = logical_workers_.Place(
      running_.Now(), [this]() PAWL_REQUIRES(mu_) { return membership_.NewIncarnation(); });
  // A worker that insists on its ranks has got them without being told so here.
  UpdateGroup(actions);
  if (changed.empty()) return;
  gate_.Changed();
  std::map<std::string, std::vector<LogicalWorkers::FreeRank>> gained;
  for (uint32_t rank = 0; rank < logical_workers_.total(); ++rank) {
    const std::string& host = logical_workers_.HostOf(rank);
    if (!host.empty() && host != before[rank]) gained[host].push_back({rank});
  }
  for (const auto& [worker, ranks] : gained)
    spdlog::info("{} given to {}", RanksText(ranks), worker);
  for (const std::string& worker : changed) AnswerAssignment(worker, actions);
  // That may be all that the job waited for.
  StartIfAllAreThere();
}

void Coordinator::PlaceIfServersAreThere(DeferredActions& actions) {
  std::vector<const Node*> servers = ServersHeardOf();
  servers.erase(std::remove_if(servers.begin(), servers.end(),
                               [](const Node* server) { return server->draining; }),
                servers.end());
  if (servers.empty() || servers.size() < scale_.servers()) return;
  // Of a partition that is loaded there is one replica, from which the others are copied then.
  director_.PlaceFirst(servers, loading() ? 1 : options_.job.replicas());
  OnPlacementChanged(actions);
  if (loading()) {
    LoadOnServers(actions);
    return;
  }
  for (const TableCatalogue::Entry* entry : tables_.All())
    CreateTableOnServers(entry->spec.id(), actions);
  ReleaseOnServers(logical_workers_.FreeRanks(), actions);
}

void Coordinator::HasAdopted(const std::string& name, uint64_t incarnation, uint64_t epoch,
                             DeferredActions& actions) {
  if (name.empty() || told_.routing == nullptr || epoch > told_.routing->epoch()) return;
  const absl::StatusOr<Node*> found = membership_.Find(name, incarnation);
  if (!found.ok() || (*found)->role != SERVER_ROLE || (*found)->adopted_epoch >= epoch) return;
  (*found)->adopted_epoch = epoch;
  (*found)->adopted_at = running_.Now();
  // Others may wait for it to delete what they keep.
  replan_ = true;
  // Every server comes here with every routing.
  if (state_.over() || !director_.handing_over()) return;
  if (!director_.CompleteHandovers(membership_.Present(SERVER_ROLE))) return;
  OnPlacementChanged(actions);
}

void Coordinator::OnPlacementChanged(DeferredActions& actions) {
  routings_.OnPlacementChanged();
  gate_.Changed();
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

void Coordinator::StartIfAllAreThere() {
  if (!servers_are_ready()) return;
  if (!serve_only_ && !logical_workers_.AllHosted()) return;
  const JobState from = state_.state();
  if (!state_.Start(clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
}

}  // namespace pawl
