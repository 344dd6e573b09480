// The rpcs of workers that form groups for collective operations.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr char kOtherRanks[] = "other ranks are assigned to the worker now";

}  // namespace

Ticket Coordinator::JoinGroup(const JoinGroupRequest& request, Done<JoinGroupResponse> done) {
  Rpc<JoinGroupResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!status.ok()) return rpc.Answer(status);
  Ticket ticket = 0;
  status = group_.Join(request, HostsOfRanks());
  if (status.ok()) {
    ticket = rpc.Suspend(pending_.joins, request.node());
  } else {
    rpc.Answer(status);
    // It waits no longer.
    pending_.joins.AnswerIf([&](const std::string& node) { return node == request.node(); }, status,
                            rpc.actions());
  }
  UpdateGroup(rpc.actions());
  return ticket;
}

Ticket Coordinator::ExchangeInGroup(const ExchangeInGroupRequest& request,
                                    Done<ExchangeInGroupResponse> done) {
  Rpc<ExchangeInGroupResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (status.ok()) status = group_.Exchange(request);
  if (!status.ok()) return rpc.Answer(status);
  const PendingRpcs::GroupExchange exchange = {request.generation(), request.name()};
  const Ticket ticket = rpc.Suspend(pending_.exchanges, exchange);
  if (const auto values = group_.Values(request.generation(), request.name());
      values.ok() && values->has_value()) {
    pending_.exchanges.AnswerIf(
        [&](const PendingRpcs::GroupExchange& other) { return other == exchange; }, **values,
        rpc.actions());
  }
  return ticket;
}

Ticket Coordinator::WatchGroup(const WatchGroupRequest& request, Done<WatchGroupResponse> done) {
  Rpc<WatchGroupResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!status.ok()) return rpc.Answer(status);
  const absl::StatusOr<std::optional<std::string>> over =
      group_.CheckEnded(request.node(), request.generation());
  if (!over.ok()) return rpc.Answer(over.status());
  if (over->has_value()) {
    WatchGroupResponse response;
    response.set_reason(**over);
    return rpc.Answer(response);
  }
  return rpc.Suspend(pending_.watches, request.generation());
}

WorkerGroup::Hosts Coordinator::HostsOfRanks() const {
  WorkerGroup::Hosts hosts;
  for (uint32_t rank = 0; rank < logical_workers_.total(); ++rank) {
    hosts.push_back({logical_workers_.HostOf(rank), logical_workers_.IncarnationOf(rank),
                     logical_workers_.IsLeaving(rank), logical_workers_.IsFinished(rank)});
  }
  return hosts;
}

void Coordinator::UpdateGroup(DeferredActions& actions) {
  if (group_.IsActive()) {
    const WorkerGroup::Hosts hosts = HostsOfRanks();
    for (const std::string& refused : group_.OnRanksAssigned(hosts)) {
      pending_.joins.AnswerIf([&](const std::string& node) { return node == refused; },
                              absl::FailedPreconditionError(kOtherRanks), actions);
    }
    // An incarnation's number is saved before anybody hears of it, and never used again, in
    // whatever incarnation of the scheduler.
    if (group_.Form(hosts, [this]() PAWL_REQUIRES(mu_) { return membership_.NewIncarnation(); }))
      gate_.Changed();
  }
  // All who wait in a group wait in the same one; another one may be there already.
  std::optional<uint64_t> over;
  const auto is_over = [&over, group = &group_](uint64_t generation) {
    if (!group->EndReason(generation).has_value()) return false;
    over = generation;
    return true;
  };
  if (pending_.watches.Any(is_over)) {
    WatchGroupResponse response;
    response.set_reason(*group_.EndReason(*over));
    spdlog::info("group {} is over: {}", *over, response.reason());
    pending_.watches.AnswerIf(is_over, response, actions);
  }
  const auto exchanges_in_it = [&](const PendingRpcs::GroupExchange& exchange) {
    return is_over(exchange.generation);
  };
  if (pending_.exchanges.Any(exchanges_in_it)) {
    pending_.exchanges.AnswerIf(exchanges_in_it, absl::AbortedError(*group_.EndReason(*over)),
                                actions);
  }
  std::optional<std::string> joined;
  const auto has_joined = [&joined, group = &group_](const std::string& node) {
    if (!group->GroupOf(node).has_value()) return false;
    joined = node;
    return true;
  };
  while (pending_.joins.Any(has_joined)) {
    const std::string node = *joined;
    const JoinGroupResponse response = *group_.GroupOf(node);
    if (response.place() == 0) {
      const auto text = [](std::string* out, const GroupMember& member) {
        absl::StrAppend(out, member.node(), " (", absl::StrJoin(member.ranks(), " "), ")");
      };
      spdlog::info("group {} is formed: {}", response.generation(),
                   absl::StrJoin(response.members(), ", ", text));
    }
    pending_.joins.AnswerIf([&](const std::string& other) { return other == node; }, response,
                            actions);
  }
}

bool Coordinator::CancelJoin(Ticket ticket, const absl::Status& status, DeferredActions& actions) {
  const auto node = pending_.joins.AnswerOne(ticket, status, actions);
  if (!node.has_value()) return false;
  // Whoever asks once more waits again.
  if (!pending_.joins.Any([&](const std::string& other) { return other == *node; }))
    group_.Withdraw(*node);
  return true;
}

}  // namespace pawl
