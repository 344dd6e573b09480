// Workers: their ranks, their evaluations and their collective group.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/evaluation/evaluation_scores.h"
#include "client_lib/security/ticket.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

std::string EvaluationText(const EvaluationResult& result) {
  std::string text = absl::StrCat("evaluation ", result.evaluation(), " at step ", result.step(),
                                  ", ", result.samples(), " samples:");
  for (const EvaluationScore& score : ScoresOf(result))
    absl::StrAppend(&text, absl::StrFormat(" %s %.5f", score.name, score.value));
  if (result.has_auc_error_max()) {
    absl::StrAppend(&text,
                    absl::StrFormat(" (auc of rounded scores, exact to %.2g; more samples than "
                                    "evaluation.max_exact_samples)",
                                    result.auc_error_max()));
  }
  return text;
}

}  // namespace

// Ranks -----------------------------------------------------------------------

Ticket Coordinator::GetAssignment(const GetAssignmentRequest& request,
                                  Done<GetAssignmentResponse> done) {
  Rpc<GetAssignmentResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  const absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!status.ok()) return rpc.Answer(status);
  const bool is_first = request.ready() && ranks_.MarkReady(request.node());
  if (is_first) {
    gate_.OnChange();
    PlaceRanks(rpc.actions());
  }
  // It cannot give up what it has not heard of. A caller that is not ready takes nothing over.
  if (request.ready() || request.newer_than_version() > 0) {
    FreeRanksOf(*membership_.FindByName(request.node()),
                ranks_.LeavingUnheard(request.node(), request.newer_than_version()), rpc.actions());
  }
  const Ticket ticket =
      rpc.Suspend(pending_.assignments, {request.node(), request.newer_than_version()});
  AnswerAssignment(request.node(), rpc.actions());
  return ticket;
}

void Coordinator::AnswerAssignment(const std::string& worker, DeferredActions& actions) {
  if (loading()) return;
  std::optional<GetAssignmentResponse> assignment = ranks_.AssignmentOf(worker);
  if (!assignment.has_value()) return;
  if (checkpoints_.restored_from().has_value())
    assignment->set_counted_from_step(checkpoints_.restored_from()->step());
  for (LogicalWorkerAssignment& rank : *assignment->mutable_logical_workers()) {
    if (!options_.gives_tickets) break;
    rank.set_ticket(MakeTicket(ticket_key_, TicketSender::kRank, rank.rank(), rank.incarnation()));
  }
  const auto is_waiting = [&](const PendingRpcs::AssignmentWanted& wanted) {
    return wanted.worker == worker && wanted.newer_than < assignment->version();
  };
  if (!pending_.assignments.Any(is_waiting)) return;
  // Saved before the answer leaves: a restarted scheduler takes no rank for unheard that the host
  // has taken over.
  if (ranks_.MarkTold(worker)) gate_.OnChange();
  pending_.assignments.AnswerIf(is_waiting, *assignment, actions);
}

Ticket Coordinator::GiveUpRanks(const GiveUpRanksRequest& request, Done<GiveUpRanksResponse> done) {
  Rpc<GiveUpRanksResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = state_.CheckNotEnded();
  const absl::StatusOr<Node*> worker = FindWorker(request.node(), request.incarnation());
  status.Update(worker.status());
  if (request.has_progress()) status.Update(membership_.CheckProgress(request.progress()));
  if (!status.ok()) return rpc.Answer(status);
  if (request.has_progress()) NoteProgress(request.progress(), **worker);
  std::vector<FreeRank> ranks;
  for (const LogicalWorkerAssignment& rank : request.logical_workers())
    ranks.push_back({rank.rank(), rank.incarnation()});
  FreeRanksOf(**worker, ranks, rpc.actions());
  return rpc.Answer(GiveUpRanksResponse());
}

void Coordinator::FreeRanksOf(const Node& worker, const std::vector<FreeRank>& ranks,
                              DeferredActions& actions) {
  const std::vector<FreeRank> freed = ranks_.GiveUp(worker, ranks, running_.Now());
  if (freed.empty()) return;
  gate_.OnChange();
  // The next host arrives at the same barriers.
  for (const FreeRank& rank : freed) barriers_.Withdraw(worker.name, rank.rank);
  OnRanksFreed(freed);
  PlaceRanks(actions);
  ReleaseOnServers(freed, actions);
}

void Coordinator::PlaceRanks(DeferredActions& actions) {
  if (state_.ended()) return;
  const std::vector<std::string> changed = ranks_.Place(
      running_.Now(), [this]() PAWL_REQUIRES(mu_) { return membership_.NewIncarnation(); });
  // Also if no assignment changed: a worker that asked for fixed ranks has got them when it joined.
  UpdateGroup(actions);
  if (changed.empty()) return;
  gate_.OnChange();
  for (const std::string& worker : changed) AnswerAssignment(worker, actions);
  MaybeStartJob();
}

void Coordinator::OnRanksFreed(const std::vector<FreeRank>& ranks) {
  for (const FreeRank& rank : ranks) evaluations_.Forget(rank.rank);
}

void Coordinator::NoteProgress(const WorkerProgress& progress, Node& worker) {
  worker.progress = Membership::KnownProgress(progress);
  ranks_.NoteProgress(worker.progress);
  metrics_.Note(progress);
}

// Data ------------------------------------------------------------------------

Ticket Coordinator::AgreeOnData(const AgreeOnDataRequest& request, Done<AgreeOnDataResponse> done) {
  Rpc<AgreeOnDataResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  const absl::StatusOr<Node*> found = FindWorker(request.node(), request.incarnation());
  if (!found.ok()) return rpc.Answer(found.status());
  const DataFingerprint& data = request.data();
  const bool may_change = !HasTrained();
  const bool is_new = !agreed_data_.has_value() || (may_change && agreed_data_->nodes().empty());
  if (is_new) {
    agreed_data_.emplace();
    *agreed_data_->mutable_fingerprint() = data;
  }
  const DataFingerprint& agreed = agreed_data_->fingerprint();
  const bool same_train =
      agreed.train() == data.train() && agreed.train_samples() == data.train_samples();
  if (same_train && agreed.eval() == data.eval() && agreed.eval_samples() == data.eval_samples()) {
    if (is_new || (may_change && !absl::c_linear_search(agreed_data_->nodes(), (*found)->name))) {
      agreed_data_->add_nodes((*found)->name);
      gate_.OnChange();
    }
    return rpc.Answer(AgreeOnDataResponse());
  }
  const auto text = [same_train](const DataFingerprint& one) {
    return absl::StrFormat("%d samples (fingerprint %x)",
                           same_train ? one.eval_samples() : one.train_samples(),
                           same_train ? one.eval() : one.train());
  };
  return rpc.Answer(absl::FailedPreconditionError(absl::StrCat(
      same_train ? "data.eval" : "data.train", ": ", NodeText(**found), " has read ", text(data),
      ", but ", agreed_data_->nodes().empty() ? "an earlier worker" : agreed_data_->nodes(0),
      " had read ", text(agreed),
      "; all workers of a job must read the same files, and files must not change while it runs")));
}

void Coordinator::ForgetReader(const std::string& worker) {
  if (!agreed_data_.has_value() || HasTrained()) return;
  auto& nodes = *agreed_data_->mutable_nodes();
  nodes.erase(std::remove(nodes.begin(), nodes.end(), worker), nodes.end());
}

bool Coordinator::HasTrained() const {
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    const RankProgress* const progress = ranks_.ProgressOf(rank);
    if (progress != nullptr && progress->steps() > 0) return true;
  }
  return false;
}

// Evaluations -----------------------------------------------------------------

Ticket Coordinator::ReportEvaluation(const ReportEvaluationRequest& request,
                                     Done<ReportEvaluationResponse> done) {
  Rpc<ReportEvaluationResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  const absl::Status allowed = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!allowed.ok()) return rpc.Answer(allowed);
  if (request.rank() < ranks_.total() && ranks_.HostOf(request.rank()) != request.node()) {
    return rpc.Answer(absl::InvalidArgumentError(
        absl::StrCat("rank ", request.rank(), " is not hosted by ", request.node())));
  }
  const bool last_part = !request.arrives() && request.part() + 1 == request.parts() &&
                         request.label() + 1 == std::max(request.labels(), 1u);
  // The result exists already: the answer to an earlier call, or its sender, was lost.
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
  if (evaluations_.IsLost(request.evaluation())) return rpc.Answer(ReportEvaluationResponse());
  if (evaluations_.SkipTo(request.evaluation())) {
    pending_.evaluations.AnswerIf(
        [&](const PendingRpcs::EvaluationCall& call) {
          return call.evaluation < request.evaluation();
        },
        ReportEvaluationResponse(), rpc.actions());
  }
  if (const absl::Status status = evaluations_.Add(request); !status.ok())
    return rpc.Answer(status);
  Ticket ticket = 0;
  if (last_part || request.arrives()) {
    ticket = rpc.Suspend(pending_.evaluations,
                         PendingRpcs::EvaluationCall{request.evaluation(), request.arrives()});
  } else {
    rpc.Answer(ReportEvaluationResponse());
  }
  MaybeAnswerArrivals(rpc.actions());
  MaybeEvaluate(rpc.at_once());
  return ticket;
}

void Coordinator::MaybeAnswerArrivals(DeferredActions& actions) {
  if (!evaluations_.AllHaveArrived()) return;
  pending_.evaluations.AnswerIf(
      [](const PendingRpcs::EvaluationCall& call) { return call.arrives; },
      ReportEvaluationResponse(), actions);
}

void Coordinator::SkipLostEvaluation(DeferredActions& actions) {
  const auto any = [](const PendingRpcs::EvaluationCall&) { return true; };
  // A rank whose last part has not come would have to send the others again.
  if (!evaluations_.MayBeLost() || !pending_.evaluations.Any(any)) return;
  uint64_t steps = 0;
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    const RankProgress* const progress = ranks_.ProgressOf(rank);
    if (progress != nullptr) steps = std::max(steps, progress->steps());
  }
  if (evaluations_.SkipBefore(steps))
    pending_.evaluations.AnswerIf(any, ReportEvaluationResponse(), actions);
}

void Coordinator::MaybeEvaluate(DeferredActions& at_once) {
  std::optional<EvaluationInput> input = evaluations_.Take();
  if (!input.has_value()) return;
  // Sends nothing, so it neither waits for a save nor delays one.
  at_once.Add([this, loss = evaluations_.loss(), input = *std::move(input)] {
    ComputeAndJudge(input, loss);
  });
}

void Coordinator::ComputeAndJudge(const EvaluationInput& input, Loss loss) {
  // Without the lock: sorting millions of scores takes seconds, and heartbeats must not wait.
  EvaluationResult result = ComputeEvaluation(input, loss);
  Section section(*this);
  if (state_.ended()) return;
  if (options_.unix_ms != nullptr) result.set_unix_ms(options_.unix_ms());
  result.set_train_s(state_.TrainSeconds(clock_.Now()));
  result.set_trained_samples(Status().samples());
  spdlog::info("{}", EvaluationText(result));
  const EarlyStoppingPolicy::Decision decision = evaluations_.Judge(result);
  if (decision.stop) spdlog::info("early stopping after evaluation {}", result.evaluation());
  if (!decision.improved) {
    PublishEvaluation(result, section.actions());
    return;
  }
  KeepBestRequest request;
  request.set_job_id(options_.job_id);
  request.set_step(result.step());
  rounds_.Ask(
      "keeping the best parameters", {running_.Now(), ReadTimeout(kKeepBestTimeout)}, kKeepBestRpc,
      request,
      [this, result](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (FailIfError(status, actions)) return;
        PublishEvaluation(result, actions);
      },
      section.actions());
}

void Coordinator::PublishEvaluation(const EvaluationResult& result, DeferredActions& actions) {
  evaluations_.Publish(result);
  gate_.OnChange();
  ReportEvaluationResponse response;
  *response.mutable_result() = result;
  response.set_stop(evaluations_.stop_training());
  pending_.evaluations.AnswerKey({.evaluation = result.evaluation()}, response, actions);
}

// The group -------------------------------------------------------------------

Ticket Coordinator::JoinGroup(const JoinGroupRequest& request, Done<JoinGroupResponse> done) {
  Rpc<JoinGroupResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!status.ok()) return rpc.Answer(status);
  Ticket ticket = 0;
  status = group_.Join(request, ranks_.Hosts(), rpc.actions());
  if (status.ok()) {
    ticket = rpc.Suspend(pending_.joins, request.node());
  } else {
    rpc.Answer(status);
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
  group_.AnswerExchange(exchange, rpc.actions());
  return ticket;
}

Ticket Coordinator::WatchGroup(const WatchGroupRequest& request, Done<WatchGroupResponse> done) {
  Rpc<WatchGroupResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  const absl::Status status = CheckWorkerCanWait(request.node(), request.incarnation());
  if (!status.ok()) return rpc.Answer(status);
  const absl::StatusOr<std::optional<WatchGroupResponse>> ended = group_.Watch(request);
  if (!ended.ok()) return rpc.Answer(ended.status());
  if (ended->has_value()) return rpc.Answer(**ended);
  return rpc.Suspend(pending_.watches, request.generation());
}

void Coordinator::UpdateGroup(DeferredActions& actions) {
  // A group's number is saved before any worker hears of it, and so is never used again.
  const bool formed = group_.Update(
      ranks_.Hosts(), [this]() PAWL_REQUIRES(mu_) { return membership_.NewIncarnation(); },
      actions);
  if (formed) gate_.OnChange();
}

}  // namespace pawl
