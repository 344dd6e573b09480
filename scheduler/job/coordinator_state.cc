// What the Coordinator shows of its state, and what it saves.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/routing/routing.h"
#include "scheduler/status/server_counters.h"
#include "spdlog/spdlog.h"

namespace pawl {

absl::StatusOr<GetStatusResponse> Coordinator::GetStatus(const GetStatusRequest& request) {
  MutexLock lock(mu_);
  GetStatusResponse status = Status();
  // How the job stands is told when it is saved.
  status.set_state(told_.state);
  status.set_failure(told_.reason);
  if (told_.state != COMPLETED) status.clear_digest();
  return status;
}

std::map<EventKind, uint64_t> Coordinator::EventCounts() const {
  MutexLock lock(mu_);
  return events_.counts();
}

GetStatusResponse Coordinator::Status() const {
  const MonotonicTime now = running_.Peek();
  GetStatusResponse status;
  *status.mutable_job() = options_.job;
  status.set_job_id(options_.job_id);
  status.set_state(state_.state());
  status.set_failure(state_.reason());
  status.set_routing_epoch(told_.routing == nullptr ? 0 : told_.routing->epoch());
  status.set_train_s(state_.TrainSeconds(clock_.Now()));
  for (const EvaluationResult& result : evaluations_.results()) *status.add_evaluations() = result;
  if (end_.digest.has_value()) status.set_digest(*end_.digest);
  *status.mutable_checkpoint() = checkpoints_.Status();
  if (restore_.has_value()) {
    status.mutable_checkpoint()->set_restored_from(
        absl::StrCat(restore_->dir(), "/", restore_->name()));
    status.mutable_checkpoint()->set_restored_step(restore_->step());
  }

  absl::flat_hash_map<uint64_t, uint32_t> replicas_of_incarnation;
  if (told_.routing != nullptr) {
    const std::vector<uint32_t> replicas = ReplicaCounts(*told_.routing);
    for (size_t server = 0; server < replicas.size(); ++server) {
      replicas_of_incarnation[told_.routing->servers(static_cast<int>(server)).incarnation()] =
          replicas[server];
    }
  }
  double loss_sum = 0;
  size_t ranks_hosted = 0;
  for (const Node* node : membership_.All()) {
    NodeStatus& shown = *status.add_nodes();
    shown.set_node(node->name);
    shown.set_role(node->role);
    shown.set_incarnation(node->incarnation);
    shown.set_address(node->address);
    shown.set_description(node->description);
    shown.set_silent_ms(static_cast<uint64_t>(std::max<int64_t>(
        0, std::chrono::duration_cast<std::chrono::milliseconds>(now - node->last_heard).count())));
    shown.set_gone(node->gone);
    shown.set_draining(node->draining && !node->gone);
    if (node->role == SERVER_ROLE) {
      *shown.mutable_server() = node->counters;
      shown.set_zone(node->zone);
      if (!node->gone && !node->disk_failure.empty()) {
        shown.mutable_disk_failure()->set_reason(node->disk_failure);
        shown.mutable_disk_failure()->set_lasts_ms(static_cast<uint32_t>(
            std::chrono::duration_cast<std::chrono::milliseconds>(now - node->disk_failed_at)
                .count()));
      }
      shown.set_standby(!node->gone && director_.IsStandby(*node));
      if (!end_.counters.has_value() && !node->gone)
        AddCounters(node->counters, *status.mutable_counters());
      if (const auto it = replicas_of_incarnation.find(node->incarnation);
          it != replicas_of_incarnation.end()) {
        shown.set_partitions(it->second);
      }
    }
    if (node->role == WORKER_ROLE) {
      *shown.mutable_worker() = node->progress;
      // Of a program with ranks of its own; the others count by rank.
      if (node->progress.ranks().empty()) {
        status.set_samples(status.samples() + node->progress.samples() + node->earlier.samples());
      }
      status.set_steps_total(std::max(status.steps_total(), node->progress.steps_total()));
      const std::vector<uint32_t> ranks = logical_workers_.RanksOf(node->name);
      for (const uint32_t rank : ranks) shown.add_logical_workers(rank);
      loss_sum += node->progress.loss() * static_cast<double>(ranks.size());
      ranks_hosted += ranks.size();
    }
  }
  std::optional<uint64_t> steps;
  for (uint32_t rank = 0; rank < logical_workers_.total(); ++rank) {
    uint64_t done = 0;
    if (const std::optional<RankProgress>& progress = logical_workers_.ProgressOf(rank);
        progress.has_value()) {
      done = progress->steps();
      status.set_samples(status.samples() + progress->samples());
    } else if (const Node* const host = membership_.FindByName(logical_workers_.LastHostOf(rank));
               host != nullptr) {
      // A rank that never had a host has done nothing.
      done = std::max(host->progress.steps_min(), host->earlier.steps_min());
    }
    steps = std::min(steps.value_or(done), done);
  }
  status.set_steps(steps.value_or(0));
  *status.mutable_moves() = director_.Moves(now);
  if (!state_.over()) {
    for (PushWait& wait : director_.PushWaits()) *status.add_push_waits() = std::move(wait);
  }
  // What is shown of the nodes is as it was told.
  if (told_.routing == nullptr || told_.routing->epoch() != director_.epoch())
    status.mutable_moves()->set_at_rest(false);
  *status.mutable_scale() = scale_;
  if (ranks_hosted > 0) status.set_loss(loss_sum / static_cast<double>(ranks_hosted));
  if (end_.counters.has_value()) *status.mutable_counters() = *end_.counters;
  if (repairs_.counts().damaged > 0) {
    ServerCounters checkpoints;
    checkpoints.set_files_damaged(repairs_.counts().damaged);
    checkpoints.set_files_repaired(repairs_.counts().replaced);
    AddCounters(checkpoints, *status.mutable_counters());
  }
  return status;
}

JobReport Coordinator::Report() const {
  JobReport report;
  report.status = Status();
  report.servers = options_.servers;
  report.workers = static_cast<uint32_t>(
      std::count_if(report.status.nodes().begin(), report.status.nodes().end(),
                    [](const NodeStatus& node) { return node.logical_workers_size() > 0; }));
  report.evaluation = evaluations_.FinalResult();
  return report;
}

SchedulerState Coordinator::State() const {
  SchedulerState stored;
  stored.set_job_id(options_.job_id);
  *stored.mutable_job() = options_.job;
  stored.set_servers(options_.servers);
  stored.set_workers(options_.workers);
  stored.set_state(state_.state());
  stored.set_reason(state_.reason());
  stored.set_train_s(state_.TrainSeconds(clock_.Now()));
  if (options_.unix_ms != nullptr && state_.state() == RUNNING) {
    stored.set_started_unix_ms(options_.unix_ms() - static_cast<uint64_t>(stored.train_s() * 1000));
  }
  *stored.mutable_membership() = membership_.Save();
  *stored.mutable_placement() = director_.Save();
  *stored.mutable_ranks() = logical_workers_.Save();
  *stored.mutable_tables() = tables_.Save();
  *stored.mutable_evaluations() = evaluations_.Save();
  *stored.mutable_barriers() = barriers_.Save();
  if (end_.digest.has_value()) stored.set_digest(*end_.digest);
  if (end_.counters.has_value()) *stored.mutable_final_counters() = *end_.counters;
  stored.set_closed(closed_);
  stored.set_rebuilt(rebuilt_);
  if (restore_.has_value()) *stored.mutable_restore() = *restore_;
  *stored.mutable_checkpoint() = checkpoints_.Status();
  *stored.mutable_events() = events_.Save();
  *stored.mutable_scale() = scale_;
  *stored.mutable_moves() = director_.Moves(running_.Peek());
  stored.set_longest_lease_ms(static_cast<uint64_t>(longest_lease_.count()));
  return stored;
}

void Coordinator::GoOnFrom(const SchedulerState& stored) {
  const MonotonicTime now = running_.Now();
  double train_s = stored.train_s();
  if (options_.unix_ms != nullptr && stored.started_unix_ms() != 0) {
    // A wall clock that was set back makes no time of it.
    const double since_start =
        (static_cast<double>(options_.unix_ms()) - static_cast<double>(stored.started_unix_ms())) /
        1000;
    train_s = std::max(train_s, since_start);
  }
  state_.Restore(
      stored.state(), stored.reason(),
      std::chrono::duration_cast<MonotonicDuration>(std::chrono::duration<double>(train_s)),
      clock_.Now());
  // A state from before this was stored says nothing: then the flags are as they were.
  former_lease_ = stored.longest_lease_ms() == 0
                      ? options_.lease
                      : std::chrono::milliseconds(stored.longest_lease_ms());
  longest_lease_ = std::max(former_lease_, options_.lease);
  membership_.Restore(stored.membership(), now + options_.restart_grace, former_lease_);
  events_.Restore(stored.events());
  if (stored.has_scale()) scale_ = stored.scale();
  director_.SetWantedServers(scale_.servers());
  logical_workers_.SetWantedWorkers(WantedWorkers());
  director_.RestoreMoves(stored.moves());
  director_.Restore(stored.placement(), now);
  logical_workers_.Restore(stored.ranks(), now);
  tables_.Restore(stored.tables());
  evaluations_.Restore(stored.evaluations());
  barriers_.Restore(stored.barriers());
  if (stored.has_restore()) restore_ = stored.restore();
  rebuilt_ = stored.rebuilt();
  checkpoints_.Restore(stored.checkpoint());
  if (stored.has_digest()) end_.digest = stored.digest();
  if (stored.has_final_counters()) end_.counters = stored.final_counters();
  if (state_.state() == COMPLETED) end_.stage = EndStage::kReported;
  goes_on_ = true;
  spdlog::info("job '{}' goes on: {}, routing epoch {}, {} nodes", options_.job.name(),
               JobState_Name(state_.state()), director_.epoch(), membership_.PresentCount());
  moves_from_ = now + options_.restart_grace + options_.lease;
  // After the job's end nobody keeps account of where the replicas are.
  if (director_.placed() && !state_.over()) {
    DeferredActions actions;
    OnPlacementChanged(actions);
    routings_.Remake(director_.placement(), membership_);
    // It is as it was saved.
    gate_ = SaveGate();
  }
  if (longest_lease_ == former_lease_) return;
  gate_.Changed();
  lease_change_ = gate_.change();
}

std::chrono::milliseconds Coordinator::LeaseToGive() const {
  return gate_.IsSaved(lease_change_) ? options_.lease : std::min(former_lease_, options_.lease);
}

}  // namespace pawl
