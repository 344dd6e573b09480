#include "scheduler/job/group_director.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"

namespace pawl {

absl::Status GroupDirector::Join(const JoinGroupRequest& request, const WorkerGroup::Hosts& hosts,
                                 DeferredActions& actions) {
  absl::Status status = group_.Join(request, hosts);
  if (!status.ok()) pending_.joins.AnswerKey(request.node(), status, actions);
  return status;
}

void GroupDirector::AnswerExchange(const PendingRpcs::GroupExchange& exchange,
                                   DeferredActions& actions) {
  const absl::StatusOr<std::optional<ExchangeInGroupResponse>> values =
      group_.Values(exchange.generation, exchange.name);
  if (!values.ok() || !values->has_value()) return;
  pending_.exchanges.AnswerKey(exchange, **values, actions);
}

absl::StatusOr<std::optional<WatchGroupResponse>> GroupDirector::Watch(
    const WatchGroupRequest& request) {
  const absl::StatusOr<std::optional<std::string>> reason =
      group_.CheckEnded(request.node(), request.generation());
  if (!reason.ok()) return reason.status();
  if (!reason->has_value()) return std::nullopt;
  WatchGroupResponse response;
  response.set_reason(**reason);
  return response;
}

bool GroupDirector::Update(const WorkerGroup::Hosts& hosts,
                           const std::function<uint64_t()>& next_generation,
                           DeferredActions& actions) {
  bool formed = false;
  if (group_.IsActive()) {
    for (const std::string& refused : group_.OnRanksAssigned(hosts)) {
      pending_.joins.AnswerKey(
          refused, absl::FailedPreconditionError("other ranks are assigned to the worker now"),
          actions);
    }
    formed = group_.Form(hosts, next_generation);
  }
  AnswerEnded(actions);
  AnswerJoined(actions);
  return formed;
}

void GroupDirector::AnswerEnded(DeferredActions& actions) {
  // All calls that wait in an ended group wait in the same one; a newer group may exist already.
  std::optional<uint64_t> ended;
  const auto has_ended = [&ended, this](uint64_t generation) {
    if (!group_.EndReason(generation).has_value()) return false;
    ended = generation;
    return true;
  };
  if (pending_.watches.Any(has_ended)) {
    WatchGroupResponse response;
    response.set_reason(*group_.EndReason(*ended));
    spdlog::info("group {} has ended: {}", *ended, response.reason());
    pending_.watches.AnswerIf(has_ended, response, actions);
  }
  const auto is_in_it = [&](const PendingRpcs::GroupExchange& exchange) {
    return has_ended(exchange.generation);
  };
  if (pending_.exchanges.Any(is_in_it)) {
    pending_.exchanges.AnswerIf(is_in_it, absl::AbortedError(*group_.EndReason(*ended)), actions);
  }
}

void GroupDirector::AnswerJoined(DeferredActions& actions) {
  const auto has_joined = [this](const std::string& worker) {
    return group_.GroupOf(worker).has_value();
  };
  while (const std::optional<std::string> worker = pending_.joins.FindKey(has_joined)) {
    const JoinGroupResponse response = *group_.GroupOf(*worker);
    if (response.place() == 0) {
      const auto text = [](std::string* out, const GroupMember& member) {
        absl::StrAppend(out, member.node(), " (", absl::StrJoin(member.ranks(), " "), ")");
      };
      spdlog::info("group {} is formed: {}", response.generation(),
                   absl::StrJoin(response.members(), ", ", text));
    }
    pending_.joins.AnswerKey(*worker, response, actions);
  }
}

void GroupDirector::OnWorkerGone(const std::string& worker, const std::string& how,
                                 DeferredActions& actions) {
  pending_.joins.AnswerKey(worker, absl::AbortedError(absl::StrCat(worker, " ", how)), actions);
  group_.OnNodeGone(worker, how);
}

bool GroupDirector::CancelJoin(Ticket ticket, const absl::Status& status,
                               DeferredActions& actions) {
  const std::optional<std::string> worker = pending_.joins.AnswerOne(ticket, status, actions);
  if (!worker.has_value()) return false;
  // A repeated call of the worker may still wait.
  if (!pending_.joins.Any([&](const std::string& other) { return other == *worker; }))
    group_.Withdraw(*worker);
  return true;
}

}  // namespace pawl
