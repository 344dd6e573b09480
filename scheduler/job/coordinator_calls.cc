// Routing, tables and barriers, and the cancellation of waiting calls.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {

Ticket Coordinator::GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) {
  Rpc<RoutingTable> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  OnRoutingAdopted(request.node(), request.incarnation(), request.newer_than_epoch(),
                   rpc.actions());
  const RoutingRequest wanted = {request.newer_than_epoch(), request.accepts_changes()};
  const bool end_is_published = published_.state == state_.state() && state_.ended();
  if (!end_is_published && published_.routing != nullptr &&
      published_.routing->epoch() > request.newer_than_epoch()) {
    // It is saved, so it goes out at once; and outside the lock, since a table takes long to copy.
    rpc.at_once().Add(
        [done = rpc.Take(), routing = routings_.Answer(wanted, published_.routing)]() mutable {
          done(*routing);
        });
    return 0;
  }
  if (const absl::Status status = CheckCanWait(); !status.ok()) return rpc.Answer(status);
  return rpc.Suspend(pending_.routing, wanted);
}

Ticket Coordinator::ConfirmRouting(const ConfirmRoutingRequest& request,
                                   Done<ConfirmRoutingResponse> done) {
  Rpc<ConfirmRoutingResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  const absl::StatusOr<Node*> found = membership_.Find(request.node(), request.incarnation());
  if (!found.ok()) return rpc.Answer(found.status());
  if ((*found)->role != SERVER_ROLE) {
    return rpc.Answer(absl::InvalidArgumentError(absl::StrCat((*found)->name, " is not a server")));
  }
  const uint64_t newest = published_.routing == nullptr ? 0 : published_.routing->epoch();
  if (request.epoch() > newest) {
    return rpc.Answer(absl::InvalidArgumentError(
        absl::StrCat("epoch is ", request.epoch(), ", and the newest routing has epoch ", newest)));
  }
  OnRoutingAdopted(request.node(), request.incarnation(), request.epoch(), rpc.actions());
  const Confirmation confirmation = director_.Confirm(**found, request.epoch());
  if (confirmation.changed) {
    gate_.OnChange();
    replan_ = true;
  }
  if (!confirmation.complete) {
    return rpc.Answer(absl::FailedPreconditionError(
        absl::StrCat("a routing newer than epoch ", request.epoch(), " removes more replicas of ",
                     (*found)->name, "'s partitions")));
  }
  return rpc.Answer(ConfirmRoutingResponse());
}

Ticket Coordinator::CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done) {
  Rpc<CreateTableResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = CheckCanWait();
  if (status.ok() && state_.state() == FINISHING)
    status = absl::UnavailableError("the job is ending");
  if (!status.ok()) return rpc.Answer(status);
  const absl::StatusOr<TableCatalogue::Creation> creation = tables_.Create(request.table());
  if (!creation.ok()) return rpc.Answer(creation.status());
  const TableSpec& spec = creation->entry->spec;
  if (creation->entry->ready) {
    CreateTableResponse response;
    *response.mutable_table() = spec;
    return rpc.Answer(response);
  }
  const Ticket ticket = rpc.Suspend(pending_.tables, spec.id());
  if (creation->is_new) gate_.OnChange();
  // Resume asks for all tables.
  if (creation->is_new && servers_ready() && !resumes_)
    CreateTableOnServers(spec.id(), rpc.actions());
  return ticket;
}

Ticket Coordinator::ListTables(const ListTablesRequest& request, Done<ListTablesResponse> done) {
  Rpc<ListTablesResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  ListTablesResponse response;
  for (const TableCatalogue::Entry* table : tables_.All()) {
    if (table->ready) *response.add_tables() = table->spec;
  }
  return rpc.Answer(response);
}

Ticket Coordinator::Barrier(const BarrierRequest& request, Done<BarrierResponse> done) {
  Rpc<BarrierResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = CheckCanWait(); !status.ok()) return rpc.Answer(status);
  const absl::StatusOr<Node*> node = membership_.Find(request.node(), request.incarnation());
  if (!node.ok()) return rpc.Answer(node.status());
  // Clients meet apart from the ranks, also if they are as many.
  const bool is_of_ranks = (*node)->role == WORKER_ROLE && request.parties() == ranks_.total() &&
                           request.party() < request.parties();
  if (is_of_ranks) {
    // A late repeat must not count for a rank that another worker hosts by now.
    const std::string& host = ranks_.HostOf(request.party());
    if (host != request.node() && (!host.empty() || ranks_.Follows(request.node()))) {
      return rpc.Answer(absl::FailedPreconditionError(
          absl::StrCat("rank ", request.party(), " is not hosted by ", request.node())));
    }
  }
  const Barriers::Kind kind = is_of_ranks ? Barriers::Kind::kRanks : Barriers::Kind::kOthers;
  const absl::StatusOr<Barriers::Outcome> outcome =
      barriers_.Arrive(request.name(), request.parties(), request.party(), request.node(), kind);
  if (!outcome.ok()) return rpc.Answer(outcome.status());
  const std::string key = Barriers::Key(kind, request.name());
  const Ticket ticket = rpc.Suspend(
      pending_.barriers, PendingRpcs::BarrierParty{key, request.party(), request.node()});
  if (*outcome == Barriers::Outcome::kComplete) {
    gate_.OnChange();
    pending_.barriers.AnswerIf(
        [&](const PendingRpcs::BarrierParty& party) { return party.barrier == key; },
        BarrierResponse(), rpc.actions());
  }
  return ticket;
}

void Coordinator::Cancel(Ticket ticket, bool deadline_passed) {
  if (ticket == 0) return;
  Section section(*this);
  const absl::Status status =
      deadline_passed ? absl::DeadlineExceededError(
                            "the call's deadline passed while it waited in the scheduler")
                      : absl::CancelledError("the caller is gone");
  // A caller that lost its connection may call again; one whose deadline passed will not.
  const std::optional<PendingRpcs::BarrierParty> party =
      pending_.barriers.AnswerOne(ticket, status, section.actions());
  if (party.has_value() && deadline_passed) {
    const absl::Status failure = barriers_.FailParty(party->barrier, party->party, party->node,
                                                     "gave up: its deadline passed");
    if (!failure.ok()) {
      gate_.OnChange();
      spdlog::warn("{}", failure.ToString());
      pending_.barriers.AnswerIf(
          [&](const PendingRpcs::BarrierParty& other) { return other.barrier == party->barrier; },
          failure, section.actions());
    }
  }
  if (party.has_value()) return;
  if (group_.CancelJoin(ticket, status, section.actions())) return;
  if (const auto dir = pending_.checkpoints.AnswerOne(ticket, status, section.actions());
      dir.has_value()) {
    if (!pending_.checkpoints.Any([&](const std::string& other) { return other == *dir; }))
      checkpoints_.Withdraw(*dir);
    return;
  }
  pending_.AnswerOne(ticket, status, section.actions());
}

}  // namespace pawl
