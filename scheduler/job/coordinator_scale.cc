// Scaling, draining, retained replicas and the event log.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/status_macros.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {

namespace {

// How many nodes are wanted after one was told to leave: one less, unless a standby replaces it.
uint32_t WantedWithoutOne(uint32_t wanted, uint32_t staying) {
  return wanted == 0 ? 0 : std::clamp(staying, wanted - 1, wanted);
}

}  // namespace

std::vector<const Node*> Coordinator::Staying(Role role) const {
  std::vector<const Node*> staying;
  for (const Node* node : membership_.Present(role)) {
    if (!node->draining && !node->leave_requested) staying.push_back(node);
  }
  return staying;
}

void Coordinator::TellToLeave(const Node& node, const std::string& why, DeferredActions& actions) {
  if (!membership_.TellToLeave(node.name)) return;
  // Other workers get its ranks as soon as it has ended its step.
  if (node.role == WORKER_ROLE && ranks_.Drain(node.name)) PlaceRanks(actions);
  spdlog::info("told node to leave: {} {}", NodeText(node), why);
  events_.Add(NODE_DRAINING, node.name, why);
  replan_ = true;
  gate_.OnChange();
  leave_change_ = gate_.change();
}

absl::Status Coordinator::CheckScale(const ScaleRequest& request) const {
  PAWL_RETURN_IF_ERROR(state_.CheckNotEnded());
  if (state_.state() == FINISHING) return absl::UnavailableError("the job is ending");
  const uint32_t replicas = std::max(options_.job.replicas(), 1u);
  if (request.has_servers() && (request.servers() < replicas || request.servers() > kMaxServers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("servers is ", request.servers(), "; it must be ", replicas,
                     " (the replicas of a partition) to ", kMaxServers));
  }
  const uint32_t least_workers = serve_only_ ? 0 : 1;
  if (request.has_workers() &&
      (request.workers() < least_workers || request.workers() > kMaxWorkers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "workers is ", request.workers(), "; it must be ", least_workers, " to ", kMaxWorkers));
  }
  return absl::OkStatus();
}

Ticket Coordinator::Scale(const ScaleRequest& request, Done<ScaleResponse> done) {
  Rpc<ScaleResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = CheckScale(request); !status.ok()) return rpc.Answer(status);
  if (request.has_servers()) scale_.set_servers(request.servers());
  if (request.has_workers()) {
    scale_.set_workers(request.workers());
    ranks_.Rebalance();
  }
  scale_.set_revision(scale_.revision() + 1);
  director_.SetWantedServers(scale_.servers());
  const std::string text =
      absl::StrCat(scale_.servers(), " servers, ", scale_.workers(), " workers");
  spdlog::info("the job is scaled to {}", text);
  events_.Add(JOB_SCALED, "", text);
  replan_ = true;
  gate_.OnChange();

  ScaleResponse response;
  const auto shed = [&](std::vector<const Node*> nodes, uint32_t wanted) PAWL_REQUIRES(mu_) {
    for (; nodes.size() > wanted; nodes.pop_back()) {
      response.add_draining(nodes.back()->name);
      TellToLeave(*nodes.back(), "the job is scaled down", rpc.actions());
    }
    return wanted - static_cast<uint32_t>(nodes.size());
  };
  if (request.has_servers()) {
    // Servers without partitions leave first, then those that joined last.
    std::vector<const Node*> servers = Staying(SERVER_ROLE);
    std::stable_sort(servers.begin(), servers.end(),
                     [&](const Node* a, const Node* b) PAWL_REQUIRES(mu_) {
                       return std::pair(director_.IsStandby(*a), a->number) <
                              std::pair(director_.IsStandby(*b), b->number);
                     });
    response.set_servers_missing(shed(std::move(servers), request.servers()));
  }
  if (request.has_workers()) {
    response.set_workers_missing(shed(Staying(WORKER_ROLE), request.workers()));
    // After the shedding: leaving workers need no ranks.
    ranks_.SetWantedWorkers(scale_.workers());
    PlaceRanks(rpc.actions());
  }
  *response.mutable_scale() = scale_;
  return rpc.Answer(response);
}

absl::Status Coordinator::CheckDrain(const DrainRequest& request) const {
  PAWL_RETURN_IF_ERROR(state_.CheckNotEnded());
  const Node* const node = membership_.FindByName(request.node());
  if (node == nullptr || node->gone) {
    return absl::NotFoundError(absl::StrCat("there is no node ",
                                            BoundedText(request.node(), kMaxNodeNameBytes),
                                            node == nullptr ? "" : " any more"));
  }
  if (node->role == CLIENT_ROLE) {
    return absl::InvalidArgumentError(absl::StrCat(node->name, " is a client: end it yourself"));
  }
  if (node->leave_requested) return absl::OkStatus();
  std::vector<const Node*> staying = Staying(node->role);
  staying.erase(std::remove(staying.begin(), staying.end(), node), staying.end());
  if (node->role == WORKER_ROLE) {
    if (staying.empty() && !request.force()) {
      return absl::FailedPreconditionError(
          absl::StrCat(node->name,
                       " is the last worker: the job would stop training; start another one "
                       "first, or use --force"));
    }
    return absl::OkStatus();
  }
  if (staying.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(node->name, " is the last server: no other can take its partitions"));
  }
  if (staying.size() < options_.job.min_in_sync()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "without ", node->name, " there would be ", staying.size(), " servers, and min_in_sync is ",
        options_.job.min_in_sync(), ": all pushes would wait; start another server first"));
  }
  const uint32_t replicas = std::max(options_.job.replicas(), 1u);
  if (staying.size() < replicas && !request.force()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "without ", node->name, " there would be ", staying.size(), " servers for the ", replicas,
        " replicas of each partition; start another server first, or use "
        "--force to continue with fewer replicas"));
  }
  return absl::OkStatus();
}

Ticket Coordinator::Drain(const DrainRequest& request, Done<DrainResponse> done) {
  Rpc<DrainResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = CheckDrain(request); !status.ok()) return rpc.Answer(status);
  const Node& node = *membership_.FindByName(request.node());
  if (node.leave_requested) return rpc.Answer(DrainResponse());
  TellToLeave(node, "drained by an operator", rpc.actions());
  // No replacement is wanted.
  const auto staying = static_cast<uint32_t>(Staying(node.role).size());
  if (node.role == SERVER_ROLE) {
    scale_.set_servers(WantedWithoutOne(scale_.servers(), staying));
    director_.SetWantedServers(scale_.servers());
  } else {
    scale_.set_workers(WantedWithoutOne(scale_.workers(), staying));
    ranks_.SetWantedWorkers(scale_.workers());
    PlaceRanks(rpc.actions());
  }
  return rpc.Answer(DrainResponse());
}

Ticket Coordinator::ReleaseRetained(const ReleaseRetainedRequest& request,
                                    Done<ReleaseRetainedResponse> done) {
  Rpc<ReleaseRetainedResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = state_.CheckNotEnded(); !status.ok()) return rpc.Answer(status);
  const Node* const node = membership_.FindByName(request.node());
  if (node == nullptr || node->role != SERVER_ROLE) {
    return rpc.Answer(absl::NotFoundError(
        absl::StrCat("there is no server ", BoundedText(request.node(), kMaxNodeNameBytes))));
  }
  if (!director_.placed()) return rpc.Answer(ReleaseRetainedResponse());
  std::optional<std::string> loss;
  const absl::StatusOr<uint32_t> released = director_.ReleaseRetained(*node, request.force(), loss);
  if (!released.ok()) return rpc.Answer(released.status());
  ReleaseRetainedResponse response;
  response.set_partitions(*released);
  rpc.Answer(response);
  if (*released > 0) OnPlacementChanged(rpc.actions());
  if (loss.has_value()) FailJob(*loss, rpc.actions());
  return 0;
}

Ticket Coordinator::ListEvents(const ListEventsRequest& request, Done<ListEventsResponse> done) {
  Rpc<ListEventsResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  ListEventsResponse response;
  for (ClusterEvent& event : events_.After(request.after()))
    *response.add_events() = std::move(event);
  response.set_job_state(state_.state());
  return rpc.Answer(response);
}

}  // namespace pawl
