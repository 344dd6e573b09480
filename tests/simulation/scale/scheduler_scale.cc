#include "tests/simulation/scale/scheduler_scale.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/rpc/routing_changes.h"
#include "google/protobuf/message.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/rpc/server_caller.h"

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kHeartbeatInterval{200};
// The scheduler learns of a server's death only after this time. The measurement starts then.
constexpr std::chrono::seconds kLease{3};
// Workers send fewer heartbeats than in reality, to save time. Their heartbeats are timed
// individually.
constexpr std::chrono::seconds kWorkerInterval{1};
// Limit on the simulated time of each phase.
constexpr std::chrono::minutes kPatience{60};
// The number of timed heartbeats.
constexpr int kTimedHeartbeats = 20000;

// Does everything that is asked at once.
class ObedientServers final : public ServerCaller {
 public:
  void Call(const std::string&, const std::string&, const google::protobuf::Message&,
            MonotonicDuration, std::shared_ptr<google::protobuf::Message>, Done done) override {
    done(absl::OkStatus());
  }
};

// Measures the processor time of this thread, independent of other load.
class Stopwatch {
 public:
  double Milliseconds() const { return Now() - started_; }

 private:
  static double Now() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  }

  const double started_ = Now();
};

class Measurement {
 public:
  explicit Measurement(const SchedulerScaleOptions& options) : options_(options) {}

  absl::StatusOr<nlohmann::ordered_json> Run() {
    PAWL_RETURN_IF_ERROR(Begin());
    RegisterAll();
    PublishFirstRouting();
    TimeHeartbeats();
    PAWL_RETURN_IF_ERROR(Lose("one_server", {options_.servers / 2}));
    std::vector<uint32_t> rack;
    for (uint32_t i = 1; i < options_.servers; i += options_.zones) rack.push_back(i);
    PAWL_RETURN_IF_ERROR(Lose("one_zone", rack));
    TimeSave();
    return figures_;
  }

 private:
  struct SimulatedNode {
    Role role = SERVER_ROLE;
    RegisterResponse registration;
    bool alive = true;
    // The epoch that the node has adopted; 0: none.
    uint64_t epoch = 0;
    HeartbeatRequest heartbeat;
  };
  struct Told {
    size_t node = 0;
    RoutingTable routing;
  };
  // Partition, learner, since epoch.
  using Copy = std::tuple<uint32_t, std::string, uint64_t>;

  absl::Status Begin() {
    Coordinator::Options options;
    PAWL_ASSIGN_OR_RETURN(
        options.job,
        ParseJob(absl::StrCat("name: 'scale' durability: MEMORY elastic: true logical_workers: ",
                              std::min(options_.workers, kMaxLogicalWorkers), " partitions: ",
                              options_.partitions, " replicas: ", options_.replicas),
                 "scale"));
    FillDefaults(options.job, options_.workers);
    options.job_id = 1;
    options.servers = options_.servers;
    options.workers = options_.workers;
    options.heartbeat_interval = kHeartbeatInterval;
    options.lease = kLease;
    options.state_changed = [this] { state_has_changed_ = true; };
    coordinator_ = std::make_unique<Coordinator>(std::move(options), clock_, servers_);
    return absl::OkStatus();
  }

  // Saves what the scheduler's process would save meanwhile.
  void Save() {
    while (std::exchange(state_has_changed_, false)) {
      std::optional<UnsavedState> unsaved = coordinator_->TakeUnsaved();
      if (!unsaved.has_value()) continue;
      coordinator_->OnStateSaved(unsaved->change);
    }
  }

  void RegisterAll() {
    const Stopwatch all;
    for (uint32_t i = 0; i < options_.servers + options_.workers; ++i) {
      SimulatedNode& node = nodes_.emplace_back();
      node.role = i < options_.servers ? SERVER_ROLE : WORKER_ROLE;
      RegisterRequest request;
      request.set_role(node.role);
      request.set_process_nonce(i + 1);
      request.set_description(absl::StrCat("host-", i, ":12345"));
      request.set_follows_assignment(node.role == WORKER_ROLE);
      if (node.role == SERVER_ROLE) {
        request.set_address(absl::StrCat("10.0.", i / 250, ".", i % 250, ":7000"));
        request.set_zone(absl::StrCat("rack-", i % options_.zones));
      }
      coordinator_->Register(request, [this, i](absl::StatusOr<RegisterResponse> response) {
        error_.Update(response.status());
        if (response.ok()) nodes_[i].registration = *std::move(response);
      });
      // Many heartbeats arrive in the time of one save.
      if (i % 100 == 99) Save();
    }
    Save();
    figures_["register_all_ms"] = all.Milliseconds();
    for (SimulatedNode& node : nodes_) {
      HeartbeatRequest& heartbeat = node.heartbeat;
      heartbeat.set_node(node.registration.node());
      heartbeat.set_incarnation(node.registration.incarnation());
      heartbeat.set_job_id(1);
      if (node.role == WORKER_ROLE) {
        heartbeat.mutable_worker()->set_steps_max(100);
        heartbeat.mutable_worker()->set_samples(1000000);
        continue;
      }
      ServerCounters& counters = *heartbeat.mutable_server();
      counters.set_pushes_applied(1000000);
      counters.set_keys_pushed(100000000);
      counters.set_parameter_bytes(options_.parameter_bytes / options_.servers);
    }
    // The heartbeat of the last server triggers the placement.
    for (size_t i = 0; i + 1 < options_.servers; ++i) error_.Update(Beat(nodes_[i]));
    Save();
    const Stopwatch placement;
    error_.Update(Beat(nodes_[options_.servers - 1]));
    figures_["first_placement_ms"] = placement.Milliseconds();
    const Stopwatch save;
    Save();
    figures_["first_routing_and_save_ms"] = save.Milliseconds();
  }

  void PublishFirstRouting() {
    const Stopwatch all;
    for (size_t i = 0; i < nodes_.size(); ++i) Ask(i);
    figures_["first_routing_to_all_ms"] = all.Milliseconds();
    if (!told_.empty()) figures_["whole_routing_bytes"] = told_.front().routing.ByteSizeLong();
    Deliver();
  }

  void Ask(size_t i) {
    const SimulatedNode& node = nodes_[i];
    GetRoutingRequest request;
    request.set_node(node.registration.node());
    request.set_incarnation(node.registration.incarnation());
    request.set_newer_than_epoch(node.epoch);
    request.set_accepts_changes(node.epoch > 0);
    coordinator_->GetRouting(request, [this, i](absl::StatusOr<RoutingTable> routing) {
      if (!routing.ok()) return;
      // The observer keeps the whole table; for other nodes only the sizes matter.
      if (i == kObserver) {
        told_.push_back({i, *std::move(routing)});
        return;
      }
      RoutingTable head;
      head.set_epoch(routing->epoch());
      head.set_since_epoch(routing->since_epoch());
      told_.push_back({i, std::move(head)});
    });
  }

  // Delivers the answers and issues the next requests.
  void Deliver() {
    while (!told_.empty()) {
      std::vector<Told> told = std::exchange(told_, {});
      for (const Told& one : told) {
        if (one.node == kObserver) Observe(one.routing);
      }
      const Stopwatch answering;
      for (const Told& one : told) {
        SimulatedNode& node = nodes_[one.node];
        if (!node.alive) continue;
        const auto bytes = bytes_of_.find({one.routing.epoch(), one.routing.since_epoch()});
        bytes_told_ += bytes == bytes_of_.end() ? whole_bytes_ : bytes->second;
        bytes_whole_ += whole_bytes_;
        node.epoch = one.routing.epoch();
        node.heartbeat.set_routing_epoch(node.epoch);
        Ask(one.node);
      }
      scheduler_ms_ += answering.Milliseconds();
      TimedSave();
    }
  }

  void Observe(const RoutingTable& routing) {
    ++epochs_told_;
    const size_t bytes = routing.ByteSizeLong();
    bytes_of_[{routing.epoch(), routing.since_epoch()}] = bytes;
    if (routing.since_epoch() == 0) {
      table_ = routing;
    } else {
      absl::StatusOr<RoutingTable> whole = ApplyRoutingChanges(table_, routing);
      error_.Update(whole.status());
      if (whole.ok()) table_ = *std::move(whole);
      smallest_change_bytes_ = std::min(smallest_change_bytes_, bytes);
      largest_change_bytes_ = std::max(largest_change_bytes_, bytes);
    }
    whole_bytes_ = table_.ByteSizeLong();
    std::map<Copy, double> copies;
    for (int p = 0; p < table_.primary_size(); ++p) {
      const PartitionReplicas& replicas = table_.replicas(p);
      for (int i = 0; i < replicas.learners_size(); ++i) {
        const Copy copy(p, table_.servers(static_cast<int>(replicas.learners(i))).node(),
                        replicas.learners_since(i));
        const auto it = copies_.find(copy);
        copies[copy] = it == copies_.end()
                           ? static_cast<double>(options_.parameter_bytes) / options_.partitions
                           : it->second;
      }
    }
    copies_ = std::move(copies);
  }

  absl::Status Beat(SimulatedNode& node) {
    absl::Status status = coordinator_->Heartbeat(node.heartbeat).status();
    node.heartbeat.clear_caught_up();
    return status;
  }

  SimulatedNode* FindServer(const std::string& name) {
    if (by_name_.empty()) {
      for (size_t i = 0; i < options_.servers; ++i) by_name_[nodes_[i].registration.node()] = i;
    }
    return &nodes_[by_name_.at(name)];
  }

  // Continues the copies. The primary reports complete ones with its next heartbeat.
  void CopyFor(MonotonicDuration duration) {
    std::map<uint32_t, int> sends;
    std::map<std::string, int> receives;
    for (const auto& [copy, left] : copies_) {
      ++sends[table_.primary(static_cast<int>(std::get<0>(copy)))];
      ++receives[std::get<1>(copy)];
    }
    for (auto& [copy, left] : copies_) {
      const uint32_t primary = table_.primary(static_cast<int>(std::get<0>(copy)));
      if (primary >= static_cast<uint32_t>(table_.servers_size())) continue;
      const int sharing = std::max(sends[primary], receives[std::get<1>(copy)]);
      left -= static_cast<double>(options_.repair_bytes_per_s) / sharing * Seconds(duration);
      if (left > 0) continue;
      SimulatedNode& learner = *FindServer(std::get<1>(copy));
      CaughtUpReplica& report =
          *FindServer(table_.servers(static_cast<int>(primary)).node())->heartbeat.add_caught_up();
      report.set_partition(std::get<0>(copy));
      report.set_node(learner.registration.node());
      report.set_incarnation(learner.registration.incarnation());
    }
  }

  void TimedSave() {
    const Stopwatch saving;
    Save();
    scheduler_ms_ += saving.Milliseconds();
  }

  void PassOneTick() {
    clock_.Advance(kTickInterval);
    ++ticks_;
    CopyFor(kTickInterval);
    const Stopwatch work;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const MonotonicDuration interval = nodes_[i].role == SERVER_ROLE
                                             ? MonotonicDuration(kHeartbeatInterval)
                                             : MonotonicDuration(kWorkerInterval);
      const auto every = static_cast<uint64_t>(interval / MonotonicDuration(kTickInterval));
      if (!nodes_[i].alive || (ticks_ + i) % every != 0) continue;
      error_.Update(Beat(nodes_[i]));
    }
    const Stopwatch tick;
    coordinator_->Tick();
    longest_tick_ms_ = std::max(longest_tick_ms_, tick.Milliseconds());
    scheduler_ms_ += work.Milliseconds();
    TimedSave();
    Deliver();
  }

  void TimeHeartbeats() {
    // Every node has adopted the routing, and the resulting work is complete.
    for (int i = 0; i < 40; ++i) PassOneTick();
    for (const Role role : {SERVER_ROLE, WORKER_ROLE}) {
      const size_t first = role == SERVER_ROLE ? 0 : options_.servers;
      const size_t count = role == SERVER_ROLE ? options_.servers : options_.workers;
      // As large as a server's report of its partitions.
      if (role == SERVER_ROLE) {
        for (size_t i = 0; i < count; ++i) {
          for (uint32_t p = static_cast<uint32_t>(i); p < options_.partitions;
               p += options_.servers) {
            PartitionFigures& figures = *nodes_[i].heartbeat.add_partitions();
            figures.set_partition(p);
            figures.set_parameter_bytes(options_.parameter_bytes / options_.partitions);
          }
        }
      }
      const Stopwatch all;
      for (int i = 0; i < kTimedHeartbeats; ++i)
        Beat(nodes_[first + static_cast<size_t>(i) % count]).IgnoreError();
      const double microseconds = all.Milliseconds() * 1000 / kTimedHeartbeats;
      figures_[role == SERVER_ROLE ? "server_heartbeat_us" : "worker_heartbeat_us"] = microseconds;
      cores_ += microseconds * 1e-6 * static_cast<double>(count) / Seconds(kHeartbeatInterval);
    }
    figures_["cores_for_heartbeats_of_200_ms"] = cores_;
    const Stopwatch ticks;
    for (int i = 0; i < 20; ++i) coordinator_->Tick();
    figures_["tick_ms"] = ticks.Milliseconds() / 20;
    const Stopwatch status;
    coordinator_->GetStatus();
    figures_["status_ms"] = status.Milliseconds();
  }

  bool IsComplete() const {
    for (int p = 0; p < table_.primary_size(); ++p) {
      if (table_.primary(p) == UINT32_MAX) return false;
      if (static_cast<uint32_t>(table_.replicas(p).backups_size()) + 1 < options_.replicas)
        return false;
    }
    return true;
  }

  // Kills these servers at the same time.
  absl::Status Lose(const std::string& what, const std::vector<uint32_t>& servers) {
    for (const uint32_t server : servers) nodes_[server].alive = false;
    const uint64_t told_before = table_.epoch();
    const uint64_t epochs_before = epochs_told_;
    bytes_told_ = bytes_whole_ = 0;
    smallest_change_bytes_ = SIZE_MAX;
    largest_change_bytes_ = 0;
    longest_tick_ms_ = scheduler_ms_ = 0;
    for (const uint64_t limit = ticks_ + kPatience / kTickInterval;
         table_.epoch() == told_before;) {
      PassOneTick();
      PAWL_RETURN_IF_ERROR(error_);
      if (ticks_ > limit) return absl::InternalError("the deaths are not detected");
    }
    nlohmann::ordered_json figures;
    figures["failover_tick_ms"] = longest_tick_ms_;
    longest_tick_ms_ = 0;
    const uint64_t start = ticks_;
    std::optional<uint64_t> repaired;
    while (true) {
      PassOneTick();
      PAWL_RETURN_IF_ERROR(error_);
      if (!repaired.has_value() && IsComplete()) repaired = ticks_;
      if (repaired.has_value() && coordinator_->GetStatus().moves().settled()) break;
      if (static_cast<int64_t>(ticks_ - start) > kPatience / kTickInterval) {
        return absl::InternalError("the cluster does not settle");
      }
    }
    const double tick_s = Seconds(kTickInterval);
    figures["replan_tick_ms_max"] = longest_tick_ms_;
    figures["repaired_s"] = static_cast<double>(*repaired - start) * tick_s;
    figures["balanced_s"] = static_cast<double>(ticks_ - start) * tick_s;
    figures["epochs"] = table_.epoch() - told_before;
    figures["epochs_told"] = epochs_told_ - epochs_before;
    figures["change_bytes_min"] = smallest_change_bytes_;
    figures["change_bytes_max"] = largest_change_bytes_;
    figures["bytes_told"] = bytes_told_;
    figures["bytes_as_whole_tables"] = bytes_whole_;
    figures["scheduler_cpu_s"] = scheduler_ms_ / 1000;
    figures_[what] = std::move(figures);
    // The table built from changes must equal the scheduler's.
    std::optional<RoutingTable> now;
    coordinator_->GetRouting(GetRoutingRequest(), [&](absl::StatusOr<RoutingTable> routing) {
      if (routing.ok()) now = *std::move(routing);
    });
    if (!now.has_value() || now->SerializeAsString() != table_.SerializeAsString()) {
      return absl::InternalError(
          absl::StrCat("after ", what, " the routing built from changes differs"));
    }
    return absl::OkStatus();
  }

  void TimeSave() {
    // Any field that changes.
    nodes_[0].heartbeat.set_draining(true);
    Beat(nodes_[0]).IgnoreError();
    state_has_changed_ = false;
    const Stopwatch all;
    const std::optional<UnsavedState> unsaved = coordinator_->TakeUnsaved();
    if (!unsaved.has_value()) return;
    figures_["state_take_ms"] = all.Milliseconds();
    const std::string bytes = unsaved->state.SerializeAsString();
    figures_["state_take_and_serialize_ms"] = all.Milliseconds();
    figures_["state_bytes"] = bytes.size();
    coordinator_->OnStateSaved(unsaved->change);
  }

  // The node whose routing is compared; never killed.
  static constexpr size_t kObserver = 0;

  const SchedulerScaleOptions options_;
  SimulatedClock clock_;
  ObedientServers servers_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<SimulatedNode> nodes_;
  std::map<std::string, size_t> by_name_;
  bool state_has_changed_ = false;
  absl::Status error_;
  std::vector<Told> told_;
  // The observer's table.
  RoutingTable table_;
  // Bytes left to copy.
  std::map<Copy, double> copies_;
  uint64_t ticks_ = 0;

  nlohmann::ordered_json figures_;
  double cores_ = 0;
  // By epoch and base epoch.
  std::map<std::pair<uint64_t, uint64_t>, size_t> bytes_of_;
  size_t whole_bytes_ = 0;
  uint64_t bytes_told_ = 0;
  uint64_t bytes_whole_ = 0;
  uint64_t epochs_told_ = 0;
  size_t smallest_change_bytes_ = SIZE_MAX;
  size_t largest_change_bytes_ = 0;
  double longest_tick_ms_ = 0;
  double scheduler_ms_ = 0;
};

}  // namespace

absl::StatusOr<nlohmann::ordered_json> MeasureScheduler(const SchedulerScaleOptions& options) {
  return Measurement(options).Run();
}

}  // namespace pawl
