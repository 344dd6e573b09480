#include "tests/simulation/simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/random.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/rpc/codec.h"
#include "proto/parameter.pb.h"
#include "proto/replication.pb.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/fault_injector.h"
#include "tests/simulation/saved_rows.h"
#include "tests/simulation/sim_ledger.h"
#include "tests/simulation/simulated_cluster.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_sender.h"

namespace pawl {
namespace {

// The first table of a job.
constexpr uint32_t kTable = 1;
// After the last fault, all work finishes within this time.
constexpr std::chrono::seconds kCalm{120};
// The time to copy a snapshot of each partition in sequence at these schedules' rate, doubled.
constexpr std::chrono::seconds kRepairBound{40};
constexpr std::chrono::milliseconds kRepairCheckInterval{50};
constexpr size_t kEventsInReport = 60;
constexpr uint64_t kSettledInterval = 200;
// While the scheduler collects a job's result it has some faults within this time.
constexpr std::chrono::milliseconds kFinishingPeriod{30};
constexpr std::chrono::milliseconds kCheckpointPeriod{800};
// Processes of a job that starts from a checkpoint die within this time.
constexpr std::chrono::milliseconds kLoadingPeriod{600};

// Answers as a replica that has accepted all changes.
bool ConfirmOnly(const std::string& bytes, SimulatedNetwork::Reply& reply) {
  ReplicateRequest request;
  if (!request.ParseFromString(bytes) || request.entries().empty()) return false;
  std::map<uint32_t, uint64_t> last;
  for (const LogEntry& entry : request.entries()) last[entry.partition()] = entry.index();
  ReplicateResponse response;
  for (const auto& [partition, index] : last) {
    ReplicaPosition& position = *response.add_positions();
    position.set_partition(partition);
    position.set_log_index(index);
  }
  reply(absl::OkStatus(), EncodeSmall(response));
  return true;
}

// Makes the push look like one of the sender's next incarnation.
void Renumber(std::string& bytes) {
  PushRequest request;
  if (!request.ParseFromString(bytes)) return;
  request.mutable_header()->set_incarnation(request.header().incarnation() + 1000);
  bytes = request.SerializeAsString();
}

// Halves the scale of a close.
void Rescale(std::string& bytes) {
  EndStepRequest request;
  if (!request.ParseFromString(bytes) || request.phase() != EndStepRequest::CLOSE) return;
  request.set_scale(request.scale() / 2);
  bytes = request.SerializeAsString();
}

// Visits the members by name.
template <typename R, typename Action>
void ForEach(R& reached, Action action) {
  action("state losses", reached.state_losses);
  action("rebuilds", reached.rebuilds);
  action("rebuild refusals", reached.rebuild_refusals);
  action("lost partitions named", reached.lost_partitions_named);
  action("exchanges of roles", reached.role_exchanges);
  action("releases", reached.releases);
  action("returns", reached.returns);
  action("catch-ups", reached.catch_ups);
  action("finished ranks released", reached.finished_releases);
  action("finished ranks released again after a restart", reached.repeated_finished_releases);
  action("jobs completed", reached.completions);
  action("schedulers started while finishing", reached.starts_while_finishing);
  action("schedulers started after completion", reached.starts_after_completion);
  action("pushes acknowledged after training", reached.pushes_after_finish);
  action("periodic checkpoints", reached.periodic_checkpoints);
  action("final checkpoints completed again", reached.repeated_ends);
  action("jobs restored", reached.restored_jobs);
  action("pushes delayed", reached.pushes_delayed);
  action("pushes refused", reached.pushes_refused);
  action("repairs under load", reached.repairs);
  action("assignments of clients", reached.client_assignments);
  action("assignments of ranks", reached.rank_assignments);
  action("steps with shared rows", reached.shared_steps);
  action("scaled pushes", reached.scaled_pushes);
  action("takeovers with clipping", reached.takeovers_with_clipping);
  action("evaluations", reached.evaluations);
  action("lost evaluations", reached.lost_evaluations);
  action("large jobs", reached.large_jobs);
  action("releases in large jobs", reached.releases_in_large_jobs);
  action("takeovers in large jobs", reached.takeovers_in_large_jobs);
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule),
        random_(schedule.seed * 2),
        numbers_(schedule.seed ^ 0x5eed),
        scripted_([this] { return numbers_.Next(); }),
        network_(loop_, random_),
        ledger_(schedule_, kTable),
        clocks_(schedule_.ranks()),
        files_(schedule_.seed),
        checkpoints_(schedule_, ledger_, files_, kTable),
        cluster_(loop_, network_, random_, MakeClusterOptions(options.sabotage)),
        world_{loop_,
               network_,
               random_,
               ledger_,
               schedule_,
               [this](const std::string& what) { Violation(what); },
               clocks_,
               [this](uint32_t rank) { cluster_.scheduler().OnRankFinished(rank); },
               [this](bool has_result) { ++(has_result ? evaluations_ : lost_evaluations_); },
               [this](const std::string& process) {
                 cluster_.scheduler().OnToldOfCompletion(process);
               }} {
    if (options.print) loop_.PrintEverything();
    if (options.sabotage == SimulationOptions::Sabotage::kReplicationIsOnlyConfirmed) {
      network_.SetIntercept([this](const std::string& rpc, std::string& request, bool,
                                   SimulatedNetwork::Reply& reply) {
        return rpc == RpcName(Method::kReplicate) && random_.Chance(0.1) &&
               ConfirmOnly(request, reply);
      });
    }
    if (options.sabotage == SimulationOptions::Sabotage::kPushesAreRenumbered) {
      network_.SetIntercept([](const std::string& rpc, std::string& request, bool is_duplicate,
                               SimulatedNetwork::Reply&) {
        if (is_duplicate && rpc == RpcName(Method::kPush)) Renumber(request);
        return false;
      });
    }
    if (options.sabotage == SimulationOptions::Sabotage::kClosesAreRescaled) {
      network_.SetIntercept(
          [this](const std::string& rpc, std::string& request, bool, SimulatedNetwork::Reply&) {
            if (rpc == RpcName(Method::kEndStep) && random_.Chance(0.1)) Rescale(request);
            return false;
          });
    }
    int site = MakeWorkers();
    for (uint32_t client = 0; client < static_cast<uint32_t>(schedule_.clients); ++client) {
      senders_.push_back(
          std::make_unique<SimulatedClient>(world_, site++, schedule_.ranks() + client));
    }
    auditor_site_ = site;
    std::vector<SimulatedSender*> senders;
    for (const auto& sender : senders_) senders.push_back(sender.get());
    injector_ = std::make_unique<FaultInjector>(loop_, network_, random_, schedule_, cluster_,
                                                std::move(senders));
  }

  Outcome Run() {
    cluster_.scheduler().Start();
    for (int server = 0; server < cluster_.servers(); ++server) cluster_.StartServer(server);
    for (const auto& sender : senders_) sender->Start();
    injector_->Start();
    const MonotonicDuration end = loop_.elapsed() + schedule_.storm;
    while (IsRunning() && loop_.elapsed() < end && !cluster_.scheduler().has_closed()) Step();
    const bool completed_early = cluster_.scheduler().has_completed();
    injector_->End();
    const MonotonicDuration limit = loop_.elapsed() + kCalm;
    if (schedule_.finishes) {
      RunToCompletion(limit, completed_early);
      if (IsRunning() && schedule_.checkpoints) RunRestored();
    } else {
      RunToCompleteReplicas(limit);
    }

    Outcome outcome;
    outcome.violation = violation_;
    outcome.job_failed = !cluster_.scheduler().failure().empty();
    if (outcome.job_failed && violation_.empty() && schedule_.durability != MEMORY) {
      Violation(absl::StrCat("the job has failed: ", cluster_.scheduler().failure()));
      outcome.violation = violation_;
    }
    outcome.hash = loop_.hash();
    outcome.events = loop_.events();
    outcome.simulated_s = Seconds(loop_.elapsed());
    for (const auto& [push, acknowledged] : ledger_.sent()) outcome.acknowledged += acknowledged;
    outcome.faults = injector_->faults();
    outcome.catch_ups = cluster_.catch_ups();
    outcome.reached = WhatWasReached();
    return outcome;
  }

 private:
  void RunToCompleteReplicas(MonotonicDuration limit) {
    RunUntil(
        [this] {
          return std::all_of(senders_.begin(), senders_.end(),
                             [](const auto& s) { return s->finished(); });
        },
        limit, "the work is not done");
    injector_->RepairDisk();
    RunUntil([this] { return IsSettled(); }, limit, "replicas are missing");
    auditor_ = std::make_unique<SimulatedAuditor>(world_, auditor_site_);
    if (IsRunning()) auditor_->Start();
    RunUntil([this] { return auditor_->finished(); }, limit, "the parameters cannot be read");
    // Checked again, because work in flight, such as a rank's release, may have changed them since.
    RunUntil([this] { return IsSettled(); }, limit, "replicas are missing at the end");
    if (IsRunning()) CompareReplicas();
  }

  // Returns the next site.
  int MakeWorkers() {
    int site = SimulatedCluster::SiteOfServer(schedule_.servers);
    for (uint32_t worker = 0; worker < static_cast<uint32_t>(schedule_.workers); ++worker) {
      std::vector<uint32_t> ranks;
      for (uint32_t i = 0; i < schedule_.ranks_per_worker; ++i)
        ranks.push_back(worker * schedule_.ranks_per_worker + i);
      senders_.push_back(std::make_unique<SimulatedWorker>(world_, site++, std::move(ranks)));
    }
    return site;
  }

  // `completed_early`: during faults, which may have kept nodes from hearing of the end.
  void RunToCompletion(MonotonicDuration limit, bool completed_early) {
    RunUntil([this] { return cluster_.scheduler().has_completed(); }, limit,
             "the job has not completed", /*interval=*/1);
    injector_->RepairDisk();
    RunUntil(
        [&] {
          return cluster_.scheduler().has_closed() && (completed_early || AllProcessesHaveLeft());
        },
        limit, "the job has not ended everywhere", /*interval=*/1);
    if (!IsRunning()) return;
    CheckResult();
    if (schedule_.checkpoints) CheckCheckpoints();
    // Its service manager may start it again.
    cluster_.scheduler().Start();
    RunUntil([this] { return cluster_.scheduler().incarnation() == nullptr; }, limit,
             "the scheduler of the ended job continues", /*interval=*/1);
  }

  // The end has its checkpoint, and the newest ones are there.
  void CheckCheckpoints() {
    const CheckpointStatus status = cluster_.scheduler().Saved().checkpoint();
    if (status.end_folder().empty())
      return Violation(absl::StrCat("the end has no checkpoint: ", status.end_failure()));
    if (const std::string mistake = checkpoints_.CheckKept(); !mistake.empty())
      Violation(absl::StrCat("the checkpoints: ", mistake));
  }

  // Another job starts from a checkpoint and trains to its end, on the same machines.
  void RunRestored() {
    auto start = checkpoints_.StartFromOne(random_);
    if (!start.ok()) return Violation(start.status().ToString());
    loop_.Note(absl::StrCat("another job starts from ", start->path));
    start_ = *std::move(start);
    ledger_.StartAnotherJob();
    world_.checks_bound = false;
    senders_.clear();
    MakeWorkers();
    finishing_ = nullptr;
    before_end_.clear();
    result_ = SavedRows();
    published_epoch_ = 0;
    for (int server = 0; server < cluster_.servers(); ++server) {
      cluster_.KillServer(server);
      cluster_.WipeDisk(server);
    }
    cluster_.scheduler().StartFrom(start_->path);
    for (int server = 0; server < cluster_.servers(); ++server) cluster_.StartServer(server);
    for (const auto& sender : senders_) sender->Start();
    for (uint64_t deaths = random_.Below(3); deaths > 0; --deaths) ScheduleDeathWhileLoading();
    RunToCompletion(loop_.elapsed() + kCalm, /*completed_early=*/false);
    restored_jobs_ += IsRunning();
  }

  // The scheduler dies and restarts, or a server whose log survives.
  void ScheduleDeathWhileLoading() {
    const int server = static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.servers())));
    const bool is_scheduler = schedule_.durability == MEMORY || random_.Chance(0.4);
    loop_.Schedule(random_.Between(std::chrono::milliseconds(0), kLoadingPeriod), nullptr,
                   "death while loading", [this, server, is_scheduler] {
                     if (is_scheduler) return cluster_.scheduler().Start();
                     cluster_.StartServer(server);
                   });
  }

  // True if no process takes part in the job any more. Some may wait for the next job.
  bool AllProcessesHaveLeft() {
    for (int server = 0; server < cluster_.servers(); ++server) {
      ServerNode* const node = cluster_.server(server);
      if (node != nullptr && node->data_plane().epoch() > 0) return false;
    }
    return std::all_of(senders_.begin(), senders_.end(),
                       [](const auto& sender) { return sender->has_left(); });
  }

  // The scheduler has read every acknowledged push for the result of the job.
  void CheckResult() {
    const auto fate_of = [this](uint32_t sender, uint64_t number, bool) {
      return before_end_.contains({sender, number}) || ledger_.IsRank(sender)
                 ? SimLedger::Fate::kApplied
                 : SimLedger::Fate::kUnknown;
    };
    pushes_after_finish_ += ledger_.acknowledged_in_job().size() - before_end_.size();
    std::vector<SimLedger::Expectation> expected = ledger_.Expect(fate_of);
    for (SimLedger::Expectation& row : expected) {
      if (!start_.has_value() || !ledger_.IsClient(row.cell.sender)) continue;
      row.least = row.most = row.between = start_->rows.ValueOf(row.cell, kTable);
      row.why = "the checkpoint has it, and clients have pushed nothing since";
    }
    if (const std::string mistake = result_.Mistake(expected, kTable); !mistake.empty())
      Violation(absl::StrCat("the result of the job: ", mistake));
  }

  // Called while the scheduler collects the result.
  void OnFinishing() {
    if (finishing_ == cluster_.scheduler().incarnation()) return;
    finishing_ = cluster_.scheduler().incarnation();
    if (before_end_.empty()) before_end_ = ledger_.acknowledged_in_job();
    injector_->OnFinishing(schedule_.checkpoints ? kCheckpointPeriod : kFinishingPeriod);
  }

  ClusterOptions MakeClusterOptions(SimulationOptions::Sabotage sabotage) {
    ClusterOptions options;
    options.job = schedule_.ToJob();
    options.servers = schedule_.servers;
    options.heartbeat_interval = schedule_.heartbeat_interval;
    options.lease = schedule_.lease;
    options.disks_forget = sabotage == SimulationOptions::Sabotage::kDiskForgets;
    options.clocks_drift = schedule_.suspends;
    options.leases_stand_still = sabotage == SimulationOptions::Sabotage::kLeasesStandStill;
    options.scheduler_forgets_leases =
        sabotage == SimulationOptions::Sabotage::kSchedulerForgetsLeases;
    options.small_backlogs = schedule_.brakes_pushes;
    options.releasing = [this](uint32_t rank, uint64_t incarnation) {
      clocks_.OnReleasing(rank, incarnation);
    };
    if (schedule_.checkpoints) options.files = &files_;
    options.checkpoint_begins = [this](uint64_t step, bool is_final) {
      checkpoints_.OnBegin(step, is_final);
    };
    options.checkpoint_completed = [this](const CheckpointManifest& manifest) {
      if (const std::string mistake = checkpoints_.OnCompleted(manifest); !mistake.empty())
        Violation(absl::StrCat("checkpoint of step ", manifest.step(), ": ", mistake));
      if (manifest.is_final()) injector_->OnFinalCheckpoint();
    };
    options.inspected = [this, job = options.job](uint64_t epoch, DataPlane& plane) {
      const std::string mistake = result_.TakeFrom(plane, epoch, schedule_.steps, job);
      if (!mistake.empty()) Violation(absl::StrCat("the result cannot be read: ", mistake));
    };
    return options;
  }

  bool IsRunning() {
    return violation_.empty() && cluster_.scheduler().failure().empty() &&
           !cluster_.scheduler().has_refused_permanently();
  }

  Reached WhatWasReached() {
    Reached reached;
    reached.evaluations = evaluations_;
    reached.lost_evaluations = lost_evaluations_;
    reached.state_losses = injector_->state_losses();
    reached.rebuilds = cluster_.scheduler().rebuilds();
    reached.rebuild_refusals = cluster_.scheduler().refusals();
    reached.role_exchanges = cluster_.scheduler().role_exchanges();
    reached.lost_partitions_named = cluster_.scheduler().has_refused_permanently();
    if (schedule_.consistency.mode() == BOUNDED) {
      reached.releases = clocks_.releases();
      reached.returns = clocks_.returns();
      reached.catch_ups = clocks_.catch_ups();
    }
    if (schedule_.unequal_steps) {
      reached.finished_releases = clocks_.finished_releases();
      reached.repeated_finished_releases = clocks_.repeated_finished_releases();
    }
    if (schedule_.finishes) {
      reached.completions = cluster_.scheduler().has_closed();
      reached.starts_while_finishing = cluster_.scheduler().starts_while_finishing();
      reached.starts_after_completion = cluster_.scheduler().starts_after_completion();
      reached.periodic_checkpoints = checkpoints_.periodic();
      reached.repeated_ends = checkpoints_.repeated_ends();
      reached.restored_jobs = restored_jobs_;
      reached.pushes_after_finish = pushes_after_finish_;
    }
    if (schedule_.brakes_pushes) {
      reached.pushes_delayed = cluster_.pushes_delayed();
      reached.pushes_refused = cluster_.pushes_refused();
      reached.repairs = repairs_;
    }
    for (const auto& [push, acknowledged] : ledger_.sent()) {
      if (!acknowledged || !ledger_.IsAssigned(push.first, push.second)) continue;
      ++(ledger_.IsRank(push.first) ? reached.rank_assignments : reached.client_assignments);
    }
    if (schedule_.shares_rows) {
      for (const auto& [push, acknowledged] : ledger_.sent())
        reached.shared_steps += acknowledged && push.first == 0;
    }
    if (schedule_.clip_global_norm > 0) {
      for (const auto& [push, acknowledged] : ledger_.sent()) {
        reached.scaled_pushes +=
            acknowledged && ledger_.IsRank(push.first) && ledger_.ScaleOf(push.second) < 1;
      }
      reached.takeovers_with_clipping = clocks_.takeovers();
    }
    if (schedule_.is_large()) {
      reached.large_jobs = 1;
      reached.releases_in_large_jobs = clocks_.releases();
      reached.takeovers_in_large_jobs = clocks_.takeovers();
    }
    return reached;
  }

  void Step() {
    if (!loop_.Step()) return Violation("no event is left");
    if (!cluster_.scheduler().violation().empty())
      return Violation(cluster_.scheduler().violation());
    if (schedule_.finishes && cluster_.scheduler().state() == FINISHING) OnFinishing();
    if (violation_.empty()) CheckPrimaries();
    if (violation_.empty() && schedule_.brakes_pushes) CheckRepair();
  }

  // While all servers live and reach each other, a partition lacks replicas for at most
  // kRepairBound, however many pushes arrive. REQUIRES: deaths of servers are the only faults.
  void CheckRepair() {
    if (loop_.elapsed() < next_repair_check_) return;
    next_repair_check_ = loop_.elapsed() + kRepairCheckInterval;
    bool all_live = true;
    for (int server = 0; server < cluster_.servers(); ++server) {
      all_live &= cluster_.server(server) != nullptr && cluster_.server(server)->serving();
    }
    const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
    if (!all_live || !routing.has_value()) {
      unrepaired_since_.reset();
      return;
    }
    for (int partition = 0; partition < routing->primary_size(); ++partition) {
      if (routing->replicas(partition).backups_size() + 1u >= schedule_.replicas) continue;
      if (!unrepaired_since_.has_value()) unrepaired_since_ = loop_.elapsed();
      if (loop_.elapsed() - *unrepaired_since_ <= kRepairBound) return;
      return Violation(absl::StrCat("partition ", partition,
                                    " lacks replicas, and all servers have been alive for ",
                                    kRepairBound.count(), " s"));
    }
    const bool expect_pushes = std::any_of(senders_.begin(), senders_.end(),
                                           [](const auto& sender) { return !sender->finished(); });
    repairs_ += unrepaired_since_.has_value() && expect_pushes;
    unrepaired_since_.reset();
  }

  template <typename Condition>
  void RunUntil(Condition condition, MonotonicDuration limit, const char* otherwise,
                uint64_t interval = kSettledInterval) {
    uint64_t next_look = loop_.events();
    while (IsRunning()) {
      if (loop_.events() >= next_look) {
        if (condition()) return;
        next_look = loop_.events() + interval;
      }
      if (loop_.elapsed() > limit) {
        std::string where;
        for (const auto& sender : senders_) absl::StrAppend(&where, "\n  ", sender->Progress());
        if (const auto routing = cluster_.scheduler().PublishedRouting(); routing.has_value()) {
          absl::StrAppend(&where, "\n", routing->DebugString());
        }
        return Violation(
            absl::StrCat(otherwise, " ", kCalm.count(), " s after the last fault:", where));
      }
      Step();
    }
  }

  // No two servers would answer a pull of the same partition at the same time, and no server
  // returns to an older epoch.
  void CheckPrimaries() {
    for (int server = 0; server < cluster_.servers(); ++server) {
      ServerNode* const node = cluster_.server(server);
      if (node == nullptr) continue;
      auto& [incarnation, epoch] = epochs_[server];
      const uint64_t now = node->data_plane().epoch();
      if (incarnation != cluster_.server_incarnation(server)) {
        incarnation = cluster_.server_incarnation(server);
        epoch = 0;
      }
      if (now < epoch)
        Violation(absl::StrCat("server ", server, " went from epoch ", epoch, " back to ", now));
      epoch = now;
    }
    if (const auto told = cluster_.scheduler().PublishedEpoch(); told != 0) {
      if (told < published_epoch_)
        Violation(
            absl::StrCat("the scheduler went from epoch ", published_epoch_, " back to ", told));
      published_epoch_ = told;
    }
    primaries_.assign(schedule_.partitions, -1);
    for (int server = 0; server < cluster_.servers(); ++server) {
      ServerNode* const node = cluster_.server(server);
      // A suspended machine does not answer; its first answer after it resumes counts.
      if (node == nullptr || cluster_.server_clock(server).is_suspended()) continue;
      for (const uint32_t partition : node->data_plane().Served()) {
        int& primary = primaries_[partition];
        if (primary >= 0) {
          return Violation(absl::StrCat("servers ", primary, " and ", server,
                                        " both serve partition ", partition));
        }
        primary = server;
      }
    }
  }

  // True if every partition has all replicas, and they have the primary's state.
  bool IsSettled() {
    const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
    if (!routing.has_value()) return false;
    for (int partition = 0; partition < routing->primary_size(); ++partition) {
      const PartitionReplicas& replicas = routing->replicas(partition);
      if (routing->primary(partition) >= static_cast<uint32_t>(routing->servers_size()))
        return false;
      if (replicas.learners_size() > 0 || replicas.backups_size() + 1u < schedule_.replicas)
        return false;
    }
    std::map<uint32_t, std::set<uint64_t>> positions;
    std::map<uint32_t, uint32_t> counts;
    for (int server = 0; server < cluster_.servers(); ++server) {
      if (cluster_.server(server) == nullptr ||
          cluster_.server(server)->data_plane().epoch() != routing->epoch()) {
        return false;
      }
      for (const RecoveredReplica& replica :
           cluster_.server(server)->data_plane().ReplicasWithData()) {
        positions[replica.partition()].insert(replica.log_index());
        ++counts[replica.partition()];
      }
    }
    return std::all_of(positions.begin(), positions.end(),
                       [](const auto& entry) { return entry.second.size() == 1; }) &&
           counts.size() == schedule_.partitions &&
           std::all_of(counts.begin(), counts.end(),
                       [this](const auto& entry) { return entry.second >= schedule_.replicas; });
  }

  void CompareReplicas() {
    std::map<uint32_t, std::pair<uint64_t, uint32_t>> seen;
    for (int server = 0; server < cluster_.servers(); ++server) {
      const auto answer = cluster_.server(server)->data_plane().Fingerprint(0);
      if (!answer.ok()) return Violation(answer.status().ToString());
      for (const ReplicaFingerprint& replica : answer->replicas()) {
        const std::pair<uint64_t, uint32_t> here(replica.log_index(), replica.fingerprint());
        const auto [first, is_new] = seen.emplace(replica.partition(), here);
        if (is_new || first->second == here) continue;
        return Violation(
            absl::StrFormat("replicas of partition %d differ: index %d fingerprint %x, and on "
                            "server %d index %d fingerprint %x",
                            replica.partition(), first->second.first, first->second.second, server,
                            here.first, here.second));
      }
    }
  }

  void Violation(const std::string& what) {
    if (!violation_.empty()) return;
    violation_ =
        absl::StrFormat("%s\n  at %.6f s, event %d: %s\nThe last events:\n", schedule_.ToString(),
                        Seconds(loop_.elapsed()), loop_.events(), what);
    const auto& trace = loop_.trace();
    for (size_t i = trace.size() - std::min(trace.size(), kEventsInReport); i < trace.size(); ++i) {
      absl::StrAppendFormat(&violation_, "%12.6f #%d %s: %s\n", Seconds(trace[i].at),
                            trace[i].number, trace[i].owner, trace[i].what);
    }
  }

  const Schedule schedule_;
  SeededRandom random_;
  SeededRandom numbers_;
  const ScopedRandomNumbers scripted_;
  EventLoop loop_;
  SimulatedNetwork network_;
  SimLedger ledger_;
  RankClocks clocks_;
  FaultEnv files_;
  CheckpointRecord checkpoints_;
  // The end of the cluster may complete a checkpoint, which uses these.
  std::string violation_;
  std::unique_ptr<FaultInjector> injector_;
  SimulatedCluster cluster_;
  SenderWorld world_;
  std::vector<std::unique_ptr<SimulatedSender>> senders_;
  int auditor_site_ = 0;
  std::unique_ptr<SimulatedSender> auditor_;

  // The scheduler that collects the job's result, or did so last.
  std::shared_ptr<Incarnation> finishing_;
  // The pushes that were acknowledged before the first one did, and the number afterwards.
  std::set<SimLedger::Push> before_end_;
  uint64_t pushes_after_finish_ = 0;
  // What the servers have told it.
  SavedRows result_;
  // The checkpoint from which the second job starts.
  std::optional<CheckpointRecord::Start> start_;
  uint64_t restored_jobs_ = 0;

  uint64_t evaluations_ = 0;
  uint64_t lost_evaluations_ = 0;

  MonotonicDuration next_repair_check_{};
  // The time since which all servers live. Unset if all replicas are complete or a server is
  // absent.
  std::optional<MonotonicDuration> unrepaired_since_;
  uint64_t repairs_ = 0;

  std::map<int, std::pair<std::shared_ptr<Incarnation>, uint64_t>> epochs_;
  uint64_t published_epoch_ = 0;
  // By partition, the serving server; used only by CheckPrimaries.
  std::vector<int> primaries_;
};

}  // namespace

void Reached::Add(const Reached& other) {
  const auto others = other.ByName();
  size_t next = 0;
  ForEach(*this, [&](const char*, uint64_t& count) { count += others[next++].second; });
}

std::vector<std::pair<std::string, uint64_t>> Reached::ByName() const {
  std::vector<std::pair<std::string, uint64_t>> names;
  ForEach(*this, [&](const char* name, uint64_t count) { names.emplace_back(name, count); });
  return names;
}

Outcome Simulate(const Schedule& schedule, const SimulationOptions& options) {
  return Simulation(schedule, options).Run();
}

}  // namespace pawl
