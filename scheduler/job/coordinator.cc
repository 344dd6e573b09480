#include "scheduler/job/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/security/ticket.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

Membership::Options MembershipOptions(const Coordinator::Options& options) {
  Membership::Options membership;
  membership.job_id = options.job_id;
  membership.lease = options.lease;
  membership.silence = std::chrono::duration_cast<MonotonicDuration>(options.heartbeat_interval *
                                                                     kMaxMissedHeartbeats);
  membership.logical_workers = options.job.logical_workers();
  return membership;
}

ReplicaDirector::Options DirectorOptions(const Coordinator::Options& options) {
  ReplicaDirector::Options director;
  director.partitions = options.job.partitions();
  director.replicas = std::max(options.job.replicas(), 1u);
  director.min_in_sync = std::max(options.job.min_in_sync(), 1u);
  director.durable = options.job.durability() != MEMORY;
  director.recovery_timeout = options.recovery_timeout;
  director.lease = options.lease;
  director.servers = options.servers;
  director.elastic = options.job.elastic();
  return director;
}

LogicalWorkers::Options RankOptions(const Coordinator::Options& options) {
  return {.total = options.job.logical_workers(),
          .workers = options.workers,
          .rebalance = options.job.elastic(),
          .takeover_grace = options.worker_takeover_grace,
          .serve_only = IsServeOnly(options.job)};
}

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, ServerCaller& servers,
                         const SchedulerState* saved)
    : options_(std::move(options)),
      serve_only_(IsServeOnly(options_.job)),
      clock_(clock),
      servers_(servers),
      running_(clock, std::max<MonotonicDuration>(options_.lease / 2, kMinPause)),
      starts_from_(running_.Now()),
      last_tick_(starts_from_),
      moves_from_(starts_from_),
      membership_(MembershipOptions(options_)),
      events_(options_.unix_ms),
      director_(DirectorOptions(options_), events_),
      ranks_(RankOptions(options_)),
      tables_(options_.job),
      evaluations_(options_.job),
      checkpoints_(options_.job, /*enabled=*/options_.write_checkpoint != nullptr, starts_from_),
      rounds_(servers,
              [this](absl::FunctionRef<void(DeferredActions&)> take) {
                Section section(*this);
                take(section.actions());
              }),
      routings_(options_.job_id),
      planned_(starts_from_),
      figures_saved_(starts_from_),
      callers_pruned_(starts_from_),
      group_(pending_) {
  MutexLock lock(mu_);
  scale_.set_servers(options_.servers);
  scale_.set_workers(options_.workers);
  longest_lease_ = former_lease_ = options_.lease;
  if (saved != nullptr) {
    RestoreState(*saved);
  } else if (options_.restore.has_value()) {
    StartFromCheckpoint(*options_.restore, options_.restore_state);
  }
  if (options_.gives_tickets && ticket_key_.empty()) ticket_key_ = NewTicketKey();
  // The state is the saved one, or that of a job that no node knows.
  published_ = PresentView();
}

absl::Status Coordinator::CheckNodeTicket(const std::string& node, uint64_t incarnation,
                                          absl::string_view ticket) {
  if (!options_.gives_tickets || IsNodeTicketOf(ticket_key_, node, incarnation, ticket))
    return absl::OkStatus();
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(membership_.Find(node, incarnation).status());
  return absl::UnauthenticatedError("the ticket is not that of the node that the call names");
}

// Saving ----------------------------------------------------------------------

void Coordinator::EndSection(DeferredActions& actions) {
  if (gate_.all_saved()) return;
  if (options_.state_changed == nullptr) {
    gate_.OnSaved(gate_.change(), actions);
    Publish(PresentView(), actions);
    return;
  }
  gate_.Hold(actions);
  options_.state_changed();
}

Coordinator::View Coordinator::PresentView() {
  return {state_.state(), state_.reason(), routings_.Newest(director_.placement(), membership_)};
}

void Coordinator::Publish(View view, DeferredActions& actions) {
  published_ = std::move(view);
  if (published_.routing == nullptr) return;
  const auto is_older = [epoch = published_.routing->epoch()](const RoutingRequest& wanted) {
    return wanted.newer_than < epoch;
  };
  // Most of the many calls wait for the same table.
  while (const std::optional<RoutingRequest> wanted = pending_.routing.FindKey(is_older)) {
    pending_.routing.AnswerKey(*wanted, *routings_.Answer(*wanted, published_.routing), actions);
  }
}

std::optional<UnsavedState> Coordinator::TakeUnsaved() {
  MutexLock lock(mu_);
  if (gate_.all_saved()) return std::nullopt;
  being_saved_ = PresentView();
  return UnsavedState{gate_.change(), State()};
}

void Coordinator::OnStateSaved(uint64_t change) {
  DeferredActions actions;
  MutexLock lock(mu_);
  gate_.OnSaved(change, actions);
  Publish(being_saved_, actions);
}

void Coordinator::Close() {
  Section section(*this);
  closed_ = true;
  gate_.OnChange();
}

void Coordinator::StopHoldingAnswers() {
  Section section(*this);
  gate_.Open(section.actions());
}

// Time ------------------------------------------------------------------------

void Coordinator::Tick() {
  Section section(*this);
  DeferredActions& actions = section.actions();
  const MonotonicTime now = running_.Now();
  const MonotonicDuration since_last_tick = now - std::exchange(last_tick_, now);
  if (const MonotonicDuration pause = running_.TakePause(); pause > MonotonicDuration::zero()) {
    spdlog::warn("the scheduler did not run for {:.3f} s; all deadlines are extended by that",
                 Seconds(pause));
  }
  if (std::exchange(resumes_, false)) Resume(actions);
  ExpireLeases(now, actions);
  if (state_.ended()) return;

  UpdatePlacement(now, actions);
  if (!ranks_.FreeRanks().empty()) PlaceRanks(actions);
  MaybeFail(ranks_.CheckReturn(now, options_.worker_return_timeout), actions);
  CheckStartTimeout(now, actions);
  SkipLostEvaluation(actions);
  if (const auto order = checkpoints_.Next(CheckpointProgress(), now); order.has_value()) {
    // A restarted scheduler must know the step.
    gate_.OnChange();
    CheckpointOnServers(*order, actions);
  }
  // No attempt can end then.
  if (!gate_.all_saved() || !director_.HasAllPrimaries()) checkpoints_.PostponeEnd(since_last_tick);
  const CheckpointDirector::EndProgress end = checkpoints_.ContinueEnd(now);
  if (end.order.has_value()) CheckpointOnServers(*end.order, actions);
  CarryOut(end.outcome, actions);
  // Calls to servers wait for the store like all other actions.
  if (!gate_.all_saved()) rounds_.Postpone(since_last_tick);
  rounds_.Tick(now, actions);
  PruneCallers(now, actions);
  if (options_.state_changed != nullptr && now - figures_saved_ > kFiguresSaveInterval) {
    figures_saved_ = now;
    gate_.OnChange();
  }
}

void Coordinator::ExpireLeases(MonotonicTime now, DeferredActions& actions) {
  if (published_.routing != nullptr)
    membership_.RefuseStaleServers(published_.routing->epoch(), options_.adoption_timeout, now);
  const std::vector<Node> dead = membership_.ExpireLeases(now);
  std::vector<std::string> how;
  for (const Node& node : dead) {
    how.push_back(absl::StrFormat("died: no heartbeat for %.1f s", Seconds(now - node.last_heard)));
    spdlog::warn("node died: {} {}", NodeText(node), how.back());
  }
  OnNodesGone(dead, how, /*dead=*/true, actions);
}

void Coordinator::UpdatePlacement(MonotonicTime now, DeferredActions& actions) {
  // Before a partition is loaded there is nothing to copy to its other replicas.
  if (director_.placed() && pristine() && director_.RestartEmpty(ServersHeardFrom())) {
    OnPlacementChanged(actions);
    // The new primaries do not know of ranks that were released before.
    ReleaseOnServers(ranks_.RanksToRelease(), actions);
  }
  if ((replan_ || now - planned_ >= kReplanInterval) && !loading()) {
    replan_ = false;
    planned_ = now;
    std::optional<StepScope> scope;
    if (now >= moves_from_) {
      // Partitions stay where they are while the result is gathered. But a partition that cannot
      // commit, because replicas are missing or its disk fails, would never give it.
      scope = state_.state() == FINISHING ? StepScope::kRepairs : StepScope::kAll;
    }
    if (director_.Step(membership_.Present(SERVER_ROLE), scope, now)) OnPlacementChanged(actions);
    replan_ = replan_ || now < moves_from_;
  }
  MaybeFail(director_.CheckRecovery(now), actions);
}

void Coordinator::CheckStartTimeout(MonotonicTime now, DeferredActions& actions) {
  // Servers that load a checkpoint have a deadline of their own, which each failover restarts.
  const bool loads = loading() && director_.placed();
  const MonotonicDuration timeout =
      loads ? MonotonicDuration(kLoadTimeout) : MonotonicDuration(options_.start_timeout);
  if (state_.state() != STARTING || now - starts_from_ <= timeout) return;
  std::vector<std::string> present;
  for (const Node* node : membership_.All()) {
    if (!node->gone) present.push_back(NodeText(*node));
  }
  FailJob(absl::StrCat(
              "waited ", Seconds(timeout), " s ",
              loads ? "for the servers to load the checkpoint; the job needs " : "for ",
              scale_.servers(), " servers and ", std::max(scale_.workers(), serve_only_ ? 0u : 1u),
              " workers; present: ", present.empty() ? "none" : absl::StrJoin(present, ", ")),
          actions);
}

void Coordinator::PruneCallers(MonotonicTime now, DeferredActions& actions) {
  if (now - callers_pruned_ <= kPruneInterval) return;
  callers_pruned_ = now;
  absl::flat_hash_set<std::string> addresses;
  for (const Node* server : membership_.Present(SERVER_ROLE)) addresses.insert(server->address);
  actions.Add([this, addresses = std::move(addresses)] { servers_.KeepOnly(addresses); });
}

void Coordinator::Resume(DeferredActions& actions) {
  // The job may have ended, or its last rank finished, since the start of this scheduler.
  const bool end_has_begun = end_.stage() != JobEnd::Stage::kNone;
  if (state_.ended()) {
    if (state_.state() != COMPLETED && !end_has_begun) OnEnded(actions);
    return;
  }
  if (!director_.placed()) {
    MaybePlaceServers(actions);
  } else if (loading()) {
    LoadOnServers(actions);
  } else {
    PrepareServers(/*all_tables=*/false, actions);
  }
  MaybeStartJob();
  if (state_.state() == FINISHING) {
    if (!end_has_begun) Run(end_.Advance(), actions);
  } else {
    MaybeFinish(actions);
  }
}

// Helpers ---------------------------------------------------------------------

absl::Status Coordinator::CheckCanWait() {
  PAWL_RETURN_IF_ERROR(state_.CheckNotEnded());
  return pending_.CheckRoom();
}

absl::Status Coordinator::CheckWorkerCanWait(const std::string& node, uint64_t incarnation) {
  PAWL_RETURN_IF_ERROR(CheckCanWait());
  return FindWorker(node, incarnation).status();
}

absl::StatusOr<Node*> Coordinator::FindWorker(const std::string& node, uint64_t incarnation) {
  PAWL_ASSIGN_OR_RETURN(Node* const worker, membership_.Find(node, incarnation));
  if (worker->role != WORKER_ROLE)
    return absl::InvalidArgumentError(absl::StrCat("node ", node, " is not a worker"));
  return worker;
}

void Coordinator::LogState(JobState from) {
  const std::string text = absl::StrCat(JobState_Name(state_.state()),
                                        state_.reason().empty() ? "" : ": ", state_.reason());
  events_.Add(JOB_STATE_CHANGED, "", text);
  spdlog::log(state_.state() == FAILED ? spdlog::level::err : spdlog::level::info,
              "job state: {} -> {}", JobState_Name(from), text);
}

JobState Coordinator::state() const {
  MutexLock lock(mu_);
  return state_.state();
}

bool Coordinator::ended() const {
  MutexLock lock(mu_);
  return state_.ended() && end_.reported() && gate_.all_saved();
}

bool Coordinator::AllNodesGone() const {
  MutexLock lock(mu_);
  return membership_.PresentCount() == 0;
}

}  // namespace pawl
