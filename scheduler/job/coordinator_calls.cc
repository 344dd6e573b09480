// The rpcs that may wait for others.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {

Ticket Coordinator::GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) {
  Rpc<RoutingTable> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  HasAdopted(request.node(), request.incarnation(), request.newer_than_epoch(), rpc.actions());
  const RoutingWanted wanted = {request.newer_than_epoch(), request.accepts_changes()};
  const bool over_is_told = told_.state == state_.state() && state_.over();
  if (!over_is_told && told_.routing != nullptr &&
      told_.routing->epoch() > request.newer_than_epoch()) {
    // It is saved, whatever else is not. A whole table takes long to copy, and not under the lock.
    rpc.at_once().Add(
        [done = rpc.Take(), routing = routings_.Answer(wanted, told_.routing)]() mutable {
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
  const uint64_t told = told_.routing == nullptr ? 0 : told_.routing->epoch();
  if (request.epoch() > told) {
    return rpc.Answer(absl::InvalidArgumentError(
        absl::StrCat("epoch is ", request.epoch(), ", and the newest routing has epoch ", told)));
  }
  HasAdopted(request.node(), request.incarnation(), request.epoch(), rpc.actions());
  const Confirmation confirmation = director_.Confirm(**found, request.epoch());
  if (confirmation.changed) {
    gate_.Changed();
    replan_ = true;
  }
  if (!confirmation.complete) {
    return rpc.Answer(absl::FailedPreconditionError(
        absl::StrCat("a routing newer than epoch ", request.epoch(), " takes further replicas of ",
                     (*found)->name, "'s partitions away")));
  }
  return rpc.Answer(ConfirmRoutingResponse());
}

Ticket Coordinator::GetAssignment(const GetAssignmentRequest& request,
                                  Done<GetAssignmentResponse> done) {
  Rpc<GetAssignmentResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!status.ok()) return rpc.Answer(status);
  if (request.ready() && logical_workers_.MarkReady(request.node())) {
    gate_.Changed();
    PlaceRanksOnWorkers(rpc.actions());
  }
  const Ticket ticket =
      rpc.Suspend(pending_.assignments, {request.node(), request.newer_than_version()});
  AnswerAssignment(request.node(), rpc.actions());
  return ticket;
}

void Coordinator::AnswerAssignment(const std::string& worker, DeferredActions& actions) {
  if (loading()) return;
  const std::optional<LogicalWorkers::Assignment> assignment =
      logical_workers_.AssignmentOf(worker);
  if (!assignment.has_value()) return;
  GetAssignmentResponse response;
  response.set_logical_workers_total(logical_workers_.total());
  response.set_version(assignment->version);
  if (restore_.has_value()) response.set_counted_from_step(restore_->step());
  for (const LogicalWorkers::FreeRank& rank : assignment->ranks) {
    LogicalWorkerAssignment& to = *response.add_logical_workers();
    to.set_rank(rank.rank);
    to.set_incarnation(rank.incarnation);
  }
  pending_.assignments.AnswerIf(
      [&](const PendingRpcs::AssignmentWanted& wanted) {
        return wanted.worker == worker && wanted.newer_than < assignment->version;
      },
      response, actions);
}

void Coordinator::NoteProgress(const WorkerProgress& progress, Node& worker) {
  worker.progress = Membership::KnownProgress(progress);
  for (const RankProgress& rank : worker.progress.ranks()) logical_workers_.NoteProgress(rank);
}

Ticket Coordinator::GiveUpRanks(const GiveUpRanksRequest& request, Done<GiveUpRanksResponse> done) {
  Rpc<GiveUpRanksResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = state_.CheckNotOver();
  const absl::StatusOr<Node*> worker = FindWorker(request.node(), request.incarnation());
  status.Update(worker.status());
  if (request.has_progress()) status.Update(membership_.CheckProgress(request.progress()));
  if (!status.ok()) return rpc.Answer(status);
  if (request.has_progress()) NoteProgress(request.progress(), **worker);
  std::vector<LogicalWorkers::FreeRank> given_up;
  for (const LogicalWorkerAssignment& rank : request.logical_workers()) {
    const LogicalWorkers::FreeRank free = {rank.rank(), rank.incarnation()};
    if (!logical_workers_.GiveUp(request.node(), absl::StrCat(NodeText(**worker), " gave it up"),
                                 free, running_.Now())) {
      continue;
    }
    given_up.push_back(free);
    // Its next host comes to the same barriers.
    barriers_.Withdraw(request.node(), free.rank);
  }
  if (!given_up.empty()) {
    gate_.Changed();
    RanksAreFree(given_up);
    PlaceRanksOnWorkers(rpc.actions());
    ReleaseOnServers(given_up, rpc.actions());
  }
  return rpc.Answer(GiveUpRanksResponse());
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
  if (creation->is_new) gate_.Changed();
  if (creation->is_new && servers_are_ready()) CreateTableOnServers(spec.id(), rpc.actions());
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
  absl::Status status = CheckCanWait();
  if (status.ok()) status = membership_.Find(request.node(), request.incarnation()).status();
  // A call that is repeated late must not stand for a rank that another worker has by now.
  const bool is_of_ranks =
      request.parties() == logical_workers_.total() && request.party() < request.parties();
  if (status.ok() && is_of_ranks && logical_workers_.Follows(request.node()) &&
      logical_workers_.HostOf(request.party()) != request.node()) {
    status = absl::FailedPreconditionError(
        absl::StrCat("rank ", request.party(), " is not hosted by ", request.node()));
  }
  if (!status.ok()) return rpc.Answer(status);
  const absl::StatusOr<Barriers::Outcome> outcome =
      barriers_.Arrive(request.name(), request.parties(), request.party(), request.node());
  if (!outcome.ok()) return rpc.Answer(outcome.status());
  const Ticket ticket =
      rpc.Suspend(pending_.barriers,
                  PendingRpcs::BarrierParty{request.name(), request.party(), request.node()});
  if (*outcome == Barriers::Outcome::kComplete) {
    gate_.Changed();
    pending_.barriers.AnswerIf(
        [&](const PendingRpcs::BarrierParty& party) { return party.barrier == request.name(); },
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
  // A caller that lost its connection may ask again; one that gave up will not come back.
  const std::optional<PendingRpcs::BarrierParty> party =
      pending_.barriers.AnswerOne(ticket, status, section.actions());
  if (party.has_value() && deadline_passed) {
    const absl::Status failure = barriers_.FailParty(party->barrier, party->party, party->node,
                                                     "gave up: its deadline passed");
    if (!failure.ok()) {
      gate_.Changed();
      spdlog::warn("{}", failure.ToString());
      pending_.barriers.AnswerIf(
          [&](const PendingRpcs::BarrierParty& other) { return other.barrier == party->barrier; },
          failure, section.actions());
    }
  }
  if (party.has_value()) return;
  if (CancelJoin(ticket, status, section.actions())) return;
  if (const auto dir = pending_.checkpoints.AnswerOne(ticket, status, section.actions());
      dir.has_value()) {
    if (!pending_.checkpoints.Any([&](const std::string& other) { return other == *dir; }))
      checkpoints_.Withdraw(*dir);
    return;
  }
  pending_.AnswerOne(ticket, status, section.actions());
}

Ticket Coordinator::ReportEvaluation(const ReportEvaluationRequest& request,
                                     Done<ReportEvaluationResponse> done) {
  Rpc<ReportEvaluationResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = CheckCanWait(); !status.ok()) return rpc.Answer(status);
  if (const auto worker = FindWorker(request.node(), request.incarnation()); !worker.ok())
    return rpc.Answer(worker.status());
  if (request.rank() < logical_workers_.total() &&
      logical_workers_.HostOf(request.rank()) != request.node())
    return rpc.Answer(absl::InvalidArgumentError(
        absl::StrCat("rank ", request.rank(), " is not hosted by ", request.node())));
  const bool last_part = request.part() + 1 == request.parts();
  // A part that came before, whose answer was lost, or whose sender was.
  if (const EvaluationResult* const result =
          evaluations_.Find(request.evaluation(), request.step());
      result != nullptr) {
    ReportEvaluationResponse response;
    if (last_part) {
      *response.mutable_result() = *result;
      response.set_stop(evaluations_.stop_training());
    }
    return rpc.Answer(response);
  }
  if (const absl::Status status = evaluations_.Add(request); !status.ok())
    return rpc.Answer(status);
  Ticket ticket = 0;
  if (last_part) {
    ticket = rpc.Suspend(pending_.evaluations, request.evaluation());
  } else {
    rpc.Answer(ReportEvaluationResponse());
  }
  if (std::optional<EvaluationInput> input = evaluations_.Take(); input.has_value()) {
    // Says nothing to anybody, so it need not wait until anything is saved, nor keep the saving
    // waiting.
    rpc.at_once().Add([this, input = *std::move(input)] { EvaluationIsComplete(input); });
  }
  return ticket;
}

}  // namespace pawl
