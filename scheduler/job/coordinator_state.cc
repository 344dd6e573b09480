// The state as it is shown, saved and restored.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/routing/routing.h"
#include "scheduler/status/server_counters.h"
#include "server/optimizer/learning_rate.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

double RateAt(const Optimizer& optimizer, uint64_t step) {
  return LearningRate(BaseRateOf(optimizer), optimizer.schedule()).At(step);
}

}  // namespace

GetStatusResponse Coordinator::GetStatus() const {
  MutexLock lock(mu_);
  GetStatusResponse status = Status();
  // The state of the job is shown once it is saved.
  status.set_state(published_.state);
  status.set_failure(published_.reason);
  if (published_.state != COMPLETED) status.clear_digest();
  return status;
}

std::map<EventKind, uint64_t> Coordinator::EventCounts() const {
  MutexLock lock(mu_);
  return events_.counts();
}

GetStatusResponse Coordinator::Status() const {
  const MonotonicTime now = running_.Peek();
  const uint64_t published_epoch = published_.routing == nullptr ? 0 : published_.routing->epoch();
  GetStatusResponse status;
  *status.mutable_job() = options_.job;
  status.set_job_id(options_.job_id);
  status.set_state(state_.state());
  status.set_failure(state_.reason());
  status.set_routing_epoch(published_epoch);
  status.set_train_s(state_.TrainSeconds(clock_.Now()));
  for (const EvaluationResult& result : evaluations_.results()) *status.add_evaluations() = result;
  metrics_.AddTo(status);
  if (end_.digest().has_value()) status.set_digest(*end_.digest());
  *status.mutable_checkpoint() = checkpoints_.Status();
  AddNodes(now, status);
  AddProgress(status);
  if (options_.job.has_model()) {
    status.set_learning_rate(RateAt(options_.job.optimizer(), status.steps()));
    if (options_.job.has_sparse_optimizer()) {
      status.set_sparse_learning_rate(RateAt(options_.job.sparse_optimizer(), status.steps()));
    }
  }
  *status.mutable_moves() = director_.Moves(now);
  // The nodes have not been told the newest placement yet.
  if (published_.routing == nullptr || published_epoch != director_.epoch())
    status.mutable_moves()->set_settled(false);
  if (!state_.ended()) {
    for (PushWait& wait : director_.PushWaits()) *status.add_push_waits() = std::move(wait);
  }
  *status.mutable_scale() = scale_;
  if (options_.security) *status.mutable_security() = options_.security();
  if (end_.counters().has_value()) *status.mutable_counters() = *end_.counters();
  if (checkpoints_.file_counts().damaged > 0) {
    ServerCounters files;
    files.set_files_damaged(checkpoints_.file_counts().damaged);
    files.set_files_repaired(checkpoints_.file_counts().replaced);
    AddCounters(files, *status.mutable_counters());
  }
  return status;
}

void Coordinator::AddNodes(MonotonicTime now, GetStatusResponse& status) const {
  for (const Node* node : membership_.All()) AddNodeStatus(*node, now, status);
  // One pass: a job may have thousands of ranks and of workers.
  absl::flat_hash_map<std::string, NodeStatus*> workers;  // by name
  for (NodeStatus& node : *status.mutable_nodes()) {
    if (node.role() == WORKER_ROLE) workers[node.node()] = &node;
  }
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    const auto host = workers.find(ranks_.HostOf(rank));
    if (host != workers.end()) host->second->add_logical_workers(rank);
    // The others may wait for it.
    const auto last = workers.find(ranks_.LastHostOf(rank));
    const RankProgress* const progress = ranks_.ProgressOf(rank);
    if (progress != nullptr && last != workers.end() && last->second->gone())
      *last->second->mutable_worker()->add_ranks() = *progress;
  }

  absl::flat_hash_map<uint64_t, uint32_t> replicas_of_incarnation;
  if (published_.routing != nullptr) {
    const std::vector<uint32_t> replicas = ReplicaCounts(*published_.routing);
    for (size_t server = 0; server < replicas.size(); ++server) {
      const auto index = static_cast<int>(server);
      replicas_of_incarnation[published_.routing->servers(index).incarnation()] = replicas[server];
    }
  }
  double loss_sum = 0;
  int ranks_hosted = 0;
  for (NodeStatus& node : *status.mutable_nodes()) {
    if (node.role() == SERVER_ROLE) {
      if (const auto it = replicas_of_incarnation.find(node.incarnation());
          it != replicas_of_incarnation.end()) {
        node.set_partitions(it->second);
      }
    }
    loss_sum += node.worker().loss() * node.logical_workers_size();
    ranks_hosted += node.logical_workers_size();
  }
  if (ranks_hosted > 0) status.set_loss(loss_sum / ranks_hosted);
}

void Coordinator::AddNodeStatus(const Node& node, MonotonicTime now,
                                GetStatusResponse& status) const {
  const auto ms_since = [now](MonotonicTime then) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - then).count();
  };
  NodeStatus& shown = *status.add_nodes();
  shown.set_node(node.name);
  shown.set_role(node.role);
  shown.set_incarnation(node.incarnation);
  shown.set_address(node.address);
  shown.set_description(node.description);
  shown.set_silent_ms(static_cast<uint64_t>(std::max<int64_t>(0, ms_since(node.last_heard))));
  shown.set_gone(node.gone);
  shown.set_draining(node.draining && !node.gone);
  *shown.mutable_security() = node.security;
  if (node.role == SERVER_ROLE) {
    *shown.mutable_server() = node.counters;
    shown.set_zone(node.zone);
    if (!node.gone && !node.disk_failure.empty()) {
      shown.mutable_disk_failure()->set_reason(node.disk_failure);
      shown.mutable_disk_failure()->set_lasts_ms(
          static_cast<uint32_t>(ms_since(node.disk_failed_at)));
    }
    shown.set_standby(!node.gone && director_.IsStandby(node));
    if (!end_.counters().has_value() && !node.gone)
      AddCounters(node.counters, *status.mutable_counters());
  }
  if (node.role == WORKER_ROLE) {
    *shown.mutable_worker() = node.progress;
    // AddNodes adds those that no other worker has taken over.
    if (node.gone) shown.mutable_worker()->clear_ranks();
    // Samples without a rank: of a program that places its ranks itself. AddProgress adds the
    // others.
    if (node.progress.ranks().empty())
      status.set_samples(status.samples() + node.progress.samples() + node.earlier.samples());
    status.set_steps_total(std::max(status.steps_total(), node.progress.steps_total()));
  }
}

void Coordinator::AddProgress(GetStatusResponse& status) const {
  std::optional<uint64_t> steps;
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    // A rank that never had a host has done nothing.
    uint64_t done = 0;
    if (const RankProgress* const progress = ranks_.ProgressOf(rank); progress != nullptr) {
      done = progress->steps();
      status.set_samples(status.samples() + progress->samples());
    } else if (const Node* const host = membership_.FindByName(ranks_.LastHostOf(rank));
               host != nullptr) {
      done = std::max(host->progress.steps_min(), host->earlier.steps_min());
    }
    steps = std::min(steps.value_or(done), done);
  }
  status.set_steps(steps.value_or(0));
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
  metrics_.Save(*stored.mutable_membership());
  *stored.mutable_placement() = director_.Save();
  *stored.mutable_ranks() = ranks_.Save();
  *stored.mutable_tables() = tables_.Save();
  *stored.mutable_evaluations() = evaluations_.Save();
  *stored.mutable_barriers() = barriers_.Save();
  end_.Save(stored);
  checkpoints_.Save(stored);
  stored.set_closed(closed_);
  stored.set_rebuilt(rebuilt_);
  *stored.mutable_events() = events_.Save();
  *stored.mutable_scale() = scale_;
  *stored.mutable_moves() = director_.Moves(running_.Peek());
  stored.set_longest_lease_ms(static_cast<uint64_t>(longest_lease_.count()));
  stored.set_ticket_key(ticket_key_);
  if (agreed_data_.has_value()) *stored.mutable_data() = *agreed_data_;
  return stored;
}

void Coordinator::RestoreState(const SchedulerState& stored) {
  const MonotonicTime now = running_.Now();
  double train_s = stored.train_s();
  if (options_.unix_ms != nullptr && stored.started_unix_ms() != 0) {
    // At least the stored time, in case the wall clock was set back.
    const double since_start =
        (static_cast<double>(options_.unix_ms()) - static_cast<double>(stored.started_unix_ms())) /
        1000;
    train_s = std::max(train_s, since_start);
  }
  state_.Restore(
      stored.state(), stored.reason(),
      std::chrono::duration_cast<MonotonicDuration>(std::chrono::duration<double>(train_s)),
      clock_.Now());
  // 0: unknown. The lease is then assumed to be unchanged.
  former_lease_ = stored.longest_lease_ms() == 0
                      ? options_.lease
                      : std::chrono::milliseconds(stored.longest_lease_ms());
  longest_lease_ = std::max(former_lease_, options_.lease);
  ticket_key_ = stored.ticket_key();
  if (stored.has_data()) agreed_data_ = stored.data();
  membership_.Restore(stored.membership(), now + options_.restart_grace, former_lease_);
  metrics_.Restore(stored.membership());
  events_.Restore(stored.events());
  if (stored.has_scale()) scale_ = stored.scale();
  director_.SetWantedServers(scale_.servers());
  ranks_.SetWantedWorkers(scale_.workers());
  director_.RestoreMoves(stored.moves());
  director_.Restore(stored.placement(), now);
  ranks_.Restore(stored.ranks(), now);
  tables_.Restore(stored.tables());
  evaluations_.Restore(stored.evaluations());
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    if (ranks_.IsFinished(rank)) evaluations_.Finish(rank);
  }
  barriers_.Restore(stored.barriers());
  rebuilt_ = stored.rebuilt();
  checkpoints_.Restore(stored);
  end_.Restore(stored);
  resumes_ = true;
  spdlog::info("job '{}' continues: {}, routing epoch {}, {} nodes", options_.job.name(),
               JobState_Name(state_.state()), director_.epoch(), membership_.PresentCount());
  moves_from_ = now + options_.restart_grace + options_.lease;
  // After the job's end the placement is not kept up to date.
  if (director_.placed() && !state_.ended()) {
    DeferredActions actions;
    OnPlacementChanged(actions);
    routings_.Remake(director_.placement(), membership_);
    // Nothing has changed since the save.
    gate_ = SaveGate();
  }
  if (longest_lease_ == former_lease_) return;
  gate_.OnChange();
  lease_change_ = gate_.change();
}

std::chrono::milliseconds Coordinator::LeaseToGive() const {
  return gate_.IsSaved(lease_change_) ? options_.lease : std::min(former_lease_, options_.lease);
}

}  // namespace pawl
