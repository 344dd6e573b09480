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
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

Membership::Options MembershipOptions(const Coordinator::Options& options) {
  Membership::Options membership;
  membership.job_id = options.job_id;
  membership.lease = options.lease;
  membership.silence = std::chrono::duration_cast<MonotonicDuration>(options.heartbeat_interval *
                                                                     kHeartbeatsOfSilence);
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

// The steps at which checkpoints may be cut are multiples of it: where the servers have the dense
// parameters too.
uint64_t CutMultiple(const Job& job) {
  if (job.dense_path() != ALLREDUCE) return 1;
  return std::max<uint64_t>(job.all_reduce().write_back_steps(), 1);
}

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, ServerCaller& servers,
                         const SchedulerState* saved)
    : options_(std::move(options)),
      serve_only_(IsServeOnly(options_.job)),
      clock_(clock),
      servers_(servers),
      running_(clock, std::max<MonotonicDuration>(options_.lease / 2, kShortestPause)),
      created_(running_.Now()),
      last_tick_(created_),
      moves_from_(created_),
      membership_(MembershipOptions(options_)),
      events_(options_.unix_ms),
      director_(DirectorOptions(options_), &events_),
      logical_workers_({.total = options_.job.logical_workers(),
                        .workers = options_.workers,
                        .rebalance = options_.job.elastic(),
                        .takeover_grace = options_.worker_takeover_grace}),
      tables_(options_.job),
      evaluations_(options_.job),
      checkpoints_(options_.job.checkpoint(), created_, CutMultiple(options_.job),
                   /*end_is_as_trained=*/!options_.job.evaluation().has_early_stopping()),
      rounds_(servers,
              [this](absl::FunctionRef<void(DeferredActions&)> take) {
                Section section(*this);
                take(section.actions());
              }),
      routings_(options_.job_id),
      planned_(created_),
      figures_saved_(created_),
      callers_pruned_(created_) {
  MutexLock lock(mu_);
  scale_.set_servers(options_.servers);
  scale_.set_workers(options_.workers);
  longest_lease_ = former_lease_ = options_.lease;
  if (saved != nullptr) {
    GoOnFrom(*saved);
  } else if (options_.restore.has_value()) {
    BeginWith(*options_.restore, options_.restore_state);
  }
  // The state is as it is saved, or is that of a job of which nobody knows yet.
  told_ = PresentView();
}

// Saving ----------------------------------------------------------------------

void Coordinator::EndSection(DeferredActions& actions) {
  if (gate_.all_saved()) return;
  if (options_.state_changed == nullptr) {
    gate_.Saved(gate_.change(), actions);
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
  told_ = std::move(view);
  if (told_.routing == nullptr) return;
  const auto is_older = [epoch = told_.routing->epoch()](const RoutingWanted& wanted) {
    return wanted.newer_than < epoch;
  };
  // Many wait, and most for the same.
  while (const std::optional<RoutingWanted> wanted = pending_.routing.FindKey(is_older)) {
    pending_.routing.AnswerIf([&](const RoutingWanted& other) { return other == *wanted; },
                              *routings_.Answer(*wanted, told_.routing), actions);
  }
}

std::optional<UnsavedState> Coordinator::TakeUnsaved() {
  MutexLock lock(mu_);
  if (gate_.all_saved()) return std::nullopt;
  being_saved_ = PresentView();
  return UnsavedState{gate_.change(), State()};
}

void Coordinator::StateIsSaved(uint64_t change) {
  DeferredActions actions;
  MutexLock lock(mu_);
  gate_.Saved(change, actions);
  Publish(being_saved_, actions);
}

void Coordinator::Close() {
  Section section(*this);
  closed_ = true;
  gate_.Changed();
}

void Coordinator::HoldNothingBack() {
  Section section(*this);
  gate_.Open(section.actions());
}

// Time ------------------------------------------------------------------------

void Coordinator::Tick() {
  Section section(*this);
  const MonotonicTime now = running_.Now();
  const MonotonicDuration since_last_tick = now - std::exchange(last_tick_, now);
  if (const MonotonicDuration pause = running_.TakePause(); pause > MonotonicDuration::zero()) {
    spdlog::warn("the scheduler did not run for {:.3f} s; everybody gets that time",
                 Seconds(pause));
  }
  if (std::exchange(goes_on_, false)) TakeUpWhatWasUnderWay(section.actions());
  if (told_.routing != nullptr)
    membership_.RefuseStaleServers(told_.routing->epoch(), options_.adoption_timeout, now);
  const std::vector<Node> dead = membership_.ExpireLeases(now);
  std::vector<std::string> how;
  for (const Node& node : dead) {
    how.push_back(absl::StrFormat("died: no heartbeat for %.1f s", Seconds(now - node.last_heard)));
    spdlog::warn("node died: {} {}", NodeText(node), how.back());
  }
  NodesAreGone(dead, how, /*dead=*/true, section.actions());
  if (state_.over()) return;

  // A replica that is copied before its partition is loaded would be one of nothing.
  if (director_.placed() && nothing_yet() && director_.RestartEmpty(ServersHeardOf())) {
    OnPlacementChanged(section.actions());
    // The new primaries know nothing of ranks that were released before.
    ReleaseOnServers(logical_workers_.FreeRanks(), section.actions());
  }
  if ((replan_ || now - planned_ >= kReplanInterval) && !loading()) {
    replan_ = false;
    planned_ = now;
    // While the result is gathered, who has it stays.
    const bool move = now >= moves_from_ && state_.state() != FINISHING;
    if (director_.Step(membership_.Present(SERVER_ROLE), move, now))
      OnPlacementChanged(section.actions());
    replan_ = replan_ || now < moves_from_;
  }
  if (const auto loss = director_.CheckRecovery(now); loss.has_value())
    FailJob(*loss, section.actions());
  if (!logical_workers_.FreeRanks().empty()) PlaceRanksOnWorkers(section.actions());
  if (const auto loss = logical_workers_.CheckReturn(now, options_.worker_return_timeout);
      loss.has_value()) {
    FailJob(*loss, section.actions());
  }
  if (state_.state() == STARTING && now - created_ > options_.start_timeout) {
    std::vector<std::string> there;
    for (const Node* node : membership_.All()) {
      if (!node->gone) there.push_back(NodeText(*node));
    }
    FailJob(absl::StrCat("waited ", Seconds(options_.start_timeout), " s for ", scale_.servers(),
                         " servers and ", WantedWorkers(), " workers; there are: ",
                         there.empty() ? "none" : absl::StrJoin(there, ", ")),
            section.actions());
  }
  BeginCheckpointIfDue(now, section.actions());
  ContinueCheckpointOfEnd(now, section.actions());
  // Questions wait for the store like all that was decided.
  if (!gate_.all_saved()) rounds_.Postpone(since_last_tick);
  rounds_.Tick(now, section.actions());
  if (now - callers_pruned_ > kPruneInterval) {
    callers_pruned_ = now;
    absl::flat_hash_set<std::string> addresses;
    for (const Node* server : membership_.Present(SERVER_ROLE)) addresses.insert(server->address);
    section.actions().Add(
        [this, addresses = std::move(addresses)] { servers_.KeepOnly(addresses); });
  }
  if (options_.state_changed != nullptr && now - figures_saved_ > kFiguresSaveInterval) {
    figures_saved_ = now;
    gate_.Changed();
  }
}

void Coordinator::TakeUpWhatWasUnderWay(DeferredActions& actions) {
  if (state_.over()) {
    if (state_.state() != COMPLETED) EndEverything(actions);
    return;
  }
  if (!director_.placed()) {
    PlaceIfServersAreThere(actions);
  } else if (loading()) {
    LoadOnServers(actions);
  } else {
    for (const TableCatalogue::Entry* entry : tables_.All()) {
      if (!entry->ready) CreateTableOnServers(entry->spec.id(), actions);
    }
    ReleaseOnServers(logical_workers_.FreeRanks(), actions);
  }
  StartIfAllAreThere();
  if (state_.state() == FINISHING) {
    EnterStage(EndStage::kRestoringBest, actions);
  } else {
    FinishIfAllWorkIsDone(actions);
  }
}

// Helpers ---------------------------------------------------------------------

absl::Status Coordinator::CheckCanWait() {
  PAWL_RETURN_IF_ERROR(state_.CheckNotOver());
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

void Coordinator::LogState(absl::string_view from) {
  const std::string text = absl::StrCat("job state: ", from, " -> ", JobState_Name(state_.state()),
                                        state_.reason().empty() ? "" : ": ", state_.reason());
  events_.Add(JOB_STATE_CHANGED, "",
              absl::StrCat(JobState_Name(state_.state()), state_.reason().empty() ? "" : ": ",
                           state_.reason()));
  if (state_.state() == FAILED) {
    spdlog::error("{}", text);
  } else {
    spdlog::info("{}", text);
  }
}

JobState Coordinator::state() const {
  MutexLock lock(mu_);
  return state_.state();
}

bool Coordinator::over() const {
  MutexLock lock(mu_);
  return state_.over() && end_.stage == EndStage::kReported && gate_.all_saved();
}

bool Coordinator::AllNodesGone() const {
  MutexLock lock(mu_);
  return membership_.PresentCount() == 0;
}

}  // namespace pawl
