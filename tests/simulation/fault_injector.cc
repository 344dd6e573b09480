#include "tests/simulation/fault_injector.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/testing/fault_env.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

// By then the table exists.
constexpr milliseconds kBegin{60};
constexpr milliseconds kFaultIntervalAtBegin{8};

}  // namespace

FaultInjector::FaultInjector(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                             const Schedule& schedule, SimulatedCluster& cluster,
                             std::vector<SimulatedSender*> senders)
    : loop_(loop),
      network_(network),
      random_(random),
      schedule_(schedule),
      cluster_(cluster),
      senders_(std::move(senders)) {
  if (schedule.kills_servers) kinds_.push_back(&FaultInjector::KillServer);
  if (schedule.kills_all_servers) kinds_.push_back(&FaultInjector::KillAllServers);
  if (schedule.kills_scheduler) kinds_.push_back(&FaultInjector::KillScheduler);
  if (schedule.kills_senders) kinds_.push_back(&FaultInjector::KillSender);
  if (schedule.drains) kinds_.push_back(&FaultInjector::Drain);
  if (schedule.pauses) kinds_.push_back(&FaultInjector::Pause);
  if (schedule.partitions_network) kinds_.push_back(&FaultInjector::PartitionNetwork);
  if (schedule.disturbs_network) kinds_.push_back(&FaultInjector::DisturbNetwork);
  if (schedule.loses_disks) kinds_.push_back(&FaultInjector::LoseDisk);
  if (schedule.breaks_disks) kinds_.push_back(&FaultInjector::BreakDisk);
  if (schedule.copies_disks) kinds_.push_back(&FaultInjector::CopyDisk);
  if (schedule.fills_folder) kinds_.push_back(&FaultInjector::FillFolder);
  if (schedule.suspends) kinds_.push_back(&FaultInjector::Suspend);
  if (schedule.loses_scheduler_state) {
    kinds_.push_back(schedule.loses_state_in_a_handover
                         ? &FaultInjector::LoseSchedulerStateInAHandover
                         : &FaultInjector::LoseSchedulerState);
    if (schedule.loses_state_behind_a_pause)
      kinds_.push_back(&FaultInjector::LoseSchedulerStateBehindAPause);
    if (schedule.loses_servers_with_state)
      kinds_.push_back(&FaultInjector::LoseSchedulerStateAndServers);
  }
  if (schedule.late_control) network.SetLateControl(0.05);
}

void FaultInjector::Start() {
  if (schedule_.storm > milliseconds(0) && !kinds_.empty()) Next();
}

void FaultInjector::End() {
  ended_ = true;
  cluster_.KillCopy();
  Note("the faults have ended");
  network_.HealAll();
  network_.faults() = NetworkFaults();
  network_.SetLateControl(0);
  if (schedule_.checkpoints) cluster_.files().SetUnlimited();
  cluster_.scheduler().clock().Resume();
  for (int server = 0; server < cluster_.servers(); ++server)
    cluster_.server_clock(server).Resume();
  for (const std::shared_ptr<Incarnation>& incarnation : paused_) loop_.Resume(incarnation);
  paused_.clear();
  if (cluster_.scheduler().incarnation() == nullptr) cluster_.scheduler().Start();
  for (int server = 0; server < cluster_.servers(); ++server) {
    if (cluster_.server_incarnation(server) == nullptr) cluster_.StartServer(server);
  }
  for (SimulatedSender* const sender : senders_) {
    if (sender->incarnation() == nullptr) sender->Start();
  }
}

void FaultInjector::Next() {
  const bool begins = schedule_.faults_at_begin && loop_.elapsed() < kBegin;
  const MonotonicDuration mean =
      begins ? kFaultIntervalAtBegin : MonotonicDuration(schedule_.fault_interval);
  In(MonotonicDuration::zero(), 2 * mean, [this] {
    Inject();
    Next();
  });
}

void FaultInjector::Inject() {
  // If its original were dead, the scheduler would take the copy for it, with the old state.
  cluster_.KillCopy();
  (this->*kinds_[random_.Below(kinds_.size())])();
}

void FaultInjector::OnFinishing(milliseconds period) {
  if (kinds_.empty()) return;
  for (uint64_t faults = random_.Below(4); faults > 0; --faults)
    In(milliseconds(0), period, [this] { Inject(); });
}

void FaultInjector::In(MonotonicDuration low, MonotonicDuration high,
                       std::function<void()> action) {
  loop_.Schedule(random_.Between(low, high), nullptr, "weather",
                 [this, action = std::move(action)] {
                   if (!ended_) action();
                 });
}

void FaultInjector::Note(const std::string& what) {
  ++faults_;
  loop_.Note(what);
}

bool FaultInjector::MayDisturbServer(int server) {
  if (schedule_.durability != MEMORY) return true;
  if (schedule_.replicas < 2 || !disturbed_.empty()) return false;
  const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
  if (!routing.has_value()) return false;
  for (int other = 0; other < cluster_.servers(); ++other) {
    if (cluster_.server(other) == nullptr || !cluster_.server(other)->serving()) return false;
  }
  if (routing->servers_size() != cluster_.servers()) return false;
  if (schedule_.loses_scheduler_state && !IsAdopted(*routing)) return false;
  for (const PartitionReplicas& replicas : routing->replicas()) {
    if (replicas.backups_size() == 0) return false;
  }
  return true;
}

void FaultInjector::StartServerIn(int server) {
  In(milliseconds(50), milliseconds(4000), [this, server] {
    disturbed_.erase(disturbed_.find(server));
    if (cluster_.server_incarnation(server) == nullptr) cluster_.StartServer(server);
  });
}

void FaultInjector::OnFinalCheckpoint() {
  if (ended_ || !schedule_.kills_scheduler || random_.Chance(0.5)) return;
  In(milliseconds(0), milliseconds(50), [this] { KillScheduler(); });
}

void FaultInjector::KillServer() {
  const int server = RandomServer();
  if (cluster_.server_incarnation(server) == nullptr || !MayDisturbServer(server)) return;
  Note(absl::StrCat("server ", server, " is killed"));
  disturbed_.insert(server);
  cluster_.KillServer(server);
  StartServerIn(server);
}

void FaultInjector::KillAllServers() {
  Note("all servers are killed");
  for (int server = 0; server < cluster_.servers(); ++server) {
    if (cluster_.server_incarnation(server) == nullptr) continue;
    disturbed_.insert(server);
    cluster_.KillServer(server);
    StartServerIn(server);
  }
}

void FaultInjector::KillScheduler() {
  if (cluster_.scheduler().incarnation() == nullptr) return;
  Note("the scheduler is killed");
  cluster_.scheduler().Kill();
  StartSchedulerIn(milliseconds(random_.Chance(0.3) ? 6000 : 1500));
}

void FaultInjector::StartSchedulerIn(MonotonicDuration high) {
  In(milliseconds(50), high, [this] {
    if (cluster_.scheduler().incarnation() != nullptr) return;
    // Five, ten or forty heartbeats.
    if (schedule_.changes_lease) {
      constexpr int kLeases[] = {5, 10, 40};
      cluster_.scheduler().SetLease(schedule_.heartbeat_interval * kLeases[random_.Below(3)]);
    }
    cluster_.scheduler().Start();
  });
}

void FaultInjector::KillSender() {
  SimulatedSender& sender = RandomSender();
  if (sender.incarnation() == nullptr) return;
  Note(absl::StrCat(sender.incarnation()->name, " is killed"));
  sender.Kill();
  In(milliseconds(50), milliseconds(3000), [&sender] {
    if (sender.incarnation() == nullptr) sender.Start();
  });
}

void FaultInjector::Drain() {
  const int server = RandomServer();
  if (cluster_.server_incarnation(server) == nullptr || !MayDisturbServer(server)) return;
  // Only if other servers can take over its replicas.
  if (static_cast<int>(schedule_.replicas) >= cluster_.servers()) return;
  Note(absl::StrCat("server ", server, " is asked to leave"));
  disturbed_.insert(server);
  cluster_.DrainServer(server);
  In(milliseconds(3000), milliseconds(6000),
     [this, server] { disturbed_.erase(disturbed_.find(server)); });
}

void FaultInjector::Pause() {
  const uint64_t which = random_.Below(2 + senders_.size());
  if (which == 0) {
    if (cluster_.scheduler().incarnation() != nullptr)
      PauseIncarnation(cluster_.scheduler().incarnation());
    return;
  }
  if (which >= 2) {
    const std::shared_ptr<Incarnation>& incarnation = senders_[which - 2]->incarnation();
    if (incarnation != nullptr) PauseIncarnation(incarnation);
    return;
  }
  const int server = RandomServer();
  if (cluster_.server_incarnation(server) == nullptr || !MayDisturbServer(server)) return;
  disturbed_.insert(server);
  PauseIncarnation(cluster_.server_incarnation(server));
  In(milliseconds(6000), milliseconds(8000),
     [this, server] { disturbed_.erase(disturbed_.find(server)); });
}

void FaultInjector::PauseIncarnation(const std::shared_ptr<Incarnation>& incarnation) {
  if (incarnation->paused) return;
  Note(absl::StrCat(incarnation->name, " is paused"));
  incarnation->paused = true;
  paused_.push_back(incarnation);
  In(milliseconds(20), milliseconds(random_.Chance(0.5) ? 600 : 4000), [this, incarnation] {
    loop_.Note(absl::StrCat(incarnation->name, " resumes"));
    paused_.erase(std::find(paused_.begin(), paused_.end(), incarnation));
    loop_.Resume(incarnation);
  });
}

void FaultInjector::Suspend() {
  if (random_.Chance(0.2)) {
    if (cluster_.scheduler().incarnation() != nullptr)
      SuspendMachine(cluster_.scheduler().incarnation(), cluster_.scheduler().clock());
    return;
  }
  const int server = RandomServer();
  if (cluster_.server_incarnation(server) == nullptr || !MayDisturbServer(server)) return;
  disturbed_.insert(server);
  SuspendMachine(cluster_.server_incarnation(server), cluster_.server_clock(server));
  In(milliseconds(6000), milliseconds(8000),
     [this, server] { disturbed_.erase(disturbed_.find(server)); });
}

void FaultInjector::SuspendMachine(const std::shared_ptr<Incarnation>& incarnation,
                                   MachineClock& clock) {
  if (incarnation->paused) return;
  Note(absl::StrCat("the machine of ", incarnation->name, " is suspended"));
  incarnation->paused = true;
  clock.Suspend();
  paused_.push_back(incarnation);
  In(milliseconds(20), milliseconds(random_.Chance(0.3) ? 600 : 5000), [this, incarnation, &clock] {
    loop_.Note(absl::StrCat("the machine of ", incarnation->name, " resumes"));
    // If the incarnation was killed meanwhile, the machine has been restarted already.
    if (incarnation->alive) clock.Resume();
    paused_.erase(std::find(paused_.begin(), paused_.end(), incarnation));
    loop_.Resume(incarnation);
  });
}

void FaultInjector::PartitionNetwork() {
  const int sites =
      SimulatedCluster::SiteOfServer(cluster_.servers()) + static_cast<int>(senders_.size());
  const int site = static_cast<int>(random_.Below(static_cast<uint64_t>(sites)));
  const bool is_server = site >= SimulatedCluster::SiteOfServer(0) &&
                         site < SimulatedCluster::SiteOfServer(cluster_.servers());
  const int server = site - SimulatedCluster::SiteOfServer(0);
  // A scheduler that hears no server takes all of them for dead; none has lost data.
  if (is_server && !MayDisturbServer(server)) return;
  std::vector<std::pair<int, int>> blocked;
  const uint64_t direction = random_.Below(3);
  const bool from_all = random_.Chance(0.4);
  const int peer = static_cast<int>(random_.Below(static_cast<uint64_t>(sites)));
  for (int other = 0; other < sites; ++other) {
    if (other == site || (!from_all && other != peer)) continue;
    if (direction != 1) blocked.emplace_back(site, other);
    if (direction != 2) blocked.emplace_back(other, site);
  }
  Note(absl::StrCat("site ", site, " is cut off from ",
                    from_all ? "all" : absl::StrCat("site ", peer), ", direction ", direction));
  for (const auto& [from, to] : blocked) network_.SetBlocked(from, to, true);
  if (is_server) disturbed_.insert(server);
  In(milliseconds(50), milliseconds(random_.Chance(0.5) ? 1000 : 5000),
     [this, blocked, site, is_server, server] {
       loop_.Note(absl::StrCat("site ", site, " is reachable again"));
       for (const auto& [from, to] : blocked) network_.SetBlocked(from, to, false);
       if (is_server) disturbed_.erase(disturbed_.find(server));
     });
}

bool FaultInjector::IsRedundant() {
  const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
  if (!routing.has_value() || routing->servers_size() != cluster_.servers()) return false;
  if (schedule_.loses_scheduler_state && !IsAdopted(*routing)) return false;
  for (int server = 0; server < cluster_.servers(); ++server) {
    if (cluster_.server(server) == nullptr || !cluster_.server(server)->serving()) return false;
  }
  return HasAllReplicas(*routing) &&
         std::none_of(routing->replicas().begin(), routing->replicas().end(),
                      [](const PartitionReplicas& replicas) { return replicas.has_yielding(); });
}

bool FaultInjector::HasAllReplicas(const RoutingTable& routing) const {
  for (int partition = 0; partition < routing.primary_size(); ++partition) {
    const PartitionReplicas& replicas = routing.replicas(partition);
    if (routing.primary(partition) >= static_cast<uint32_t>(routing.servers_size()) &&
        !replicas.has_yielding())
      return false;
    if (replicas.backups_size() + 1u < schedule_.replicas || replicas.confirm_since() != 0)
      return false;
  }
  return true;
}

bool FaultInjector::IsAdopted(const RoutingTable& routing) {
  for (int server = 0; server < cluster_.servers(); ++server) {
    if (cluster_.server(server) == nullptr ||
        cluster_.server(server)->data_plane().epoch() != routing.epoch())
      return false;
  }
  return true;
}

bool FaultInjector::HasBegun() {
  if (has_begun_) return true;
  const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
  if (!routing.has_value() || !IsAdopted(*routing)) return false;
  for (int server = 0; server < cluster_.servers(); ++server) {
    const DataPlane& plane = cluster_.server(server)->data_plane();
    const std::optional<HeldJob> held = plane.Held();
    if (!held.has_value() || held->tables().empty()) return false;
    if (schedule_.durability == MEMORY) continue;
    for (const RecoveredReplica& replica : plane.ReplicasWithData()) {
      if (!cluster_.IsOnDisk(server, replica.partition())) return false;
    }
  }
  return has_begun_ = true;
}

void FaultInjector::LoseDisk() {
  const bool redundant = IsRedundant();
  // If the scheduler's state is lost too, it does not tell which server has what.
  if (!redundant && schedule_.loses_scheduler_state) return;
  if (redundant) disk_is_lost_ = false;
  // One lost disk does not lose what two servers have at every acknowledgement, even if other
  // servers are dead at the moment.
  if (!redundant && (schedule_.min_in_sync < 2 || disk_is_lost_)) return;
  disk_is_lost_ = true;
  const int lost = RandomServer();
  const bool damaged = schedule_.damages_disks && random_.Chance(0.5);
  Note(absl::StrCat("server ", lost, " is killed, and its disk is ", damaged ? "damaged" : "lost"));
  disturbed_.insert(lost);
  cluster_.KillServer(lost);
  if (damaged) {
    cluster_.DamageDisk(lost);
  } else {
    cluster_.WipeDisk(lost);
  }
  // Some servers are replaced now, others only when the faults end.
  if (random_.Chance(0.7)) StartServerIn(lost);
  const int other = RandomServer();
  if (other == lost || random_.Chance(0.3)) return;
  Note(absl::StrCat("at the same moment server ", other, " is killed"));
  disturbed_.insert(other);
  cluster_.KillServer(other);
  if (random_.Chance(0.5)) return StartServerIn(other);
  In(milliseconds(20), milliseconds(100), [this, other] {
    disturbed_.erase(disturbed_.find(other));
    if (cluster_.server_incarnation(other) == nullptr) cluster_.StartServer(other);
  });
}

void FaultInjector::BreakDisk() {
  if (broken_disk_ >= 0) return;
  broken_disk_ = RandomServer();
  const bool full = random_.Chance(0.5);
  Note(absl::StrCat("the disk of server ", broken_disk_, full ? " is full" : " hangs"));
  cluster_.BreakDisk(broken_disk_, full, !full);
  In(milliseconds(500), milliseconds(random_.Chance(0.5) ? 5000 : 60000), [this] { RepairDisk(); });
}

void FaultInjector::RepairDisk() {
  if (broken_disk_ < 0) return;
  loop_.Note(absl::StrCat("the disk of server ", broken_disk_, " works again"));
  cluster_.BreakDisk(std::exchange(broken_disk_, -1), /*full=*/false, /*hangs=*/false);
}

void FaultInjector::FillFolder() {
  Note("the folder of checkpoints is full");
  FaultEnv& files = cluster_.files();
  files.SetCapacity(files.UsedBytes() + random_.Below(5000));
  In(milliseconds(200), milliseconds(5000), [&files] { files.SetUnlimited(); });
}

void FaultInjector::CopyDisk() {
  // The scheduler must hear the original and know it.
  if (cluster_.scheduler().is_rebuilding()) return;
  const NetworkFaults& faults = network_.faults();
  if (!disturbed_.empty() || !paused_.empty() || cluster_.scheduler().incarnation() == nullptr ||
      network_.AnyBlocked())
    return;
  if (faults.lose_request > 0 || faults.lose_reply > 0 || faults.slow > 0) return;
  const int server = RandomServer();
  if (cluster_.server(server) == nullptr || !cluster_.server(server)->serving()) return;
  Note(absl::StrCat("a copy of server ", server, "'s disk is started as a server"));
  cluster_.StartCopy(server);
}

void FaultInjector::LoseSchedulerState() {
  const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
  if (!routing.has_value() || !HasBegun()) return;
  // Only the state tells whether the successor of a lost replica has acknowledged anything yet.
  const bool is_unconfirmed =
      std::any_of(routing->replicas().begin(), routing->replicas().end(),
                  [](const PartitionReplicas& replicas) { return replicas.confirm_since() != 0; });
  if (disk_is_lost_ && is_unconfirmed) return;
  Note("the scheduler is killed, and its state is lost");
  ++state_losses_;
  cluster_.scheduler().LoseState();
  StartSchedulerIn(milliseconds(1500));
}

void FaultInjector::LoseSchedulerStateBehindAPause() {
  if (!IsRedundant() || !HasBegun()) return;
  const int paused = RandomServer();
  const std::shared_ptr<Incarnation> incarnation = cluster_.server_incarnation(paused);
  if (incarnation->paused) return;
  Note(absl::StrCat(incarnation->name, " is paused, until the scheduler and the others restart"));
  incarnation->paused = true;
  paused_.push_back(incarnation);
  disturbed_.insert(paused);
  In(milliseconds(2000), milliseconds(4000), [this, paused, incarnation] {
    if (incarnation->alive) {
      Note("the scheduler loses its state, and the servers that are not paused restart");
      ++state_losses_;
      cluster_.scheduler().LoseState();
      for (int server = 0; server < cluster_.servers(); ++server) {
        if (server == paused) continue;
        disturbed_.insert(server);
        cluster_.KillServer(server);
        StartServerIn(server);
      }
      StartSchedulerIn(milliseconds(1500));
    }
    In(milliseconds(20), milliseconds(1500), [this, paused, incarnation] {
      loop_.Note(absl::StrCat(incarnation->name, " resumes"));
      disturbed_.erase(disturbed_.find(paused));
      paused_.erase(std::find(paused_.begin(), paused_.end(), incarnation));
      loop_.Resume(incarnation);
    });
  });
}

void FaultInjector::LoseSchedulerStateInAHandover() {
  if (!IsRedundant() || !HasBegun() || !disturbed_.empty()) return;
  const int server = RandomServer();
  Note(absl::StrCat("server ", server, " is killed, and gets primaries back later"));
  disturbed_.insert(server);
  cluster_.KillServer(server);
  StartServerIn(server);
  LoseSchedulerStateAtHandover(/*looks=*/5000);
}

void FaultInjector::LoseSchedulerStateAtHandover(int looks) {
  if (ended_ || looks == 0) return;
  const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
  std::string successor;
  for (int p = 0; routing.has_value() && p < routing->primary_size(); ++p) {
    const PartitionReplicas& replicas = routing->replicas(p);
    if (replicas.has_yielding() && replicas.backups_size() > 0)
      successor = routing->servers(static_cast<int>(replicas.backups(0))).node();
  }
  if (successor.empty() || !disturbed_.empty() || !IsAdopted(*routing) ||
      !HasAllReplicas(*routing)) {
    loop_.Schedule(milliseconds(2), nullptr, "a look for a handover",
                   [this, looks] { LoseSchedulerStateAtHandover(looks - 1); });
    return;
  }
  Note(absl::StrCat("the scheduler loses its state while a primary hands over to ", successor));
  ++state_losses_;
  cluster_.scheduler().LoseState();
  for (int server = 0; server < cluster_.servers(); ++server) {
    if (cluster_.server(server) == nullptr || cluster_.server(server)->node() != successor ||
        random_.Chance(0.5))
      continue;
    Note(absl::StrCat("so does server ", server, " its disk"));
    disturbed_.insert(server);
    cluster_.KillServer(server);
    cluster_.WipeDisk(server);
    StartServerIn(server);
  }
  StartSchedulerIn(milliseconds(1500));
}

void FaultInjector::LoseSchedulerStateAndServers() {
  const std::optional<RoutingTable> routing = cluster_.scheduler().PublishedRouting();
  if (!IsRedundant() || !HasBegun()) return;
  std::set<int> lost;
  const uint64_t most =
      std::min<uint64_t>(schedule_.replicas, static_cast<uint64_t>(cluster_.servers()) - 1);
  for (uint64_t count = random_.Between(1, most); lost.size() < count;) lost.insert(RandomServer());
  std::set<std::string> lost_names;
  for (const int server : lost) lost_names.insert(cluster_.server(server)->node());
  std::set<uint32_t> lost_partitions;
  for (int partition = 0; partition < routing->primary_size(); ++partition) {
    const auto is_lost = [&](uint32_t server) {
      return lost_names.contains(routing->servers(static_cast<int>(server)).node());
    };
    const auto& backups = routing->replicas(partition).backups();
    if (is_lost(routing->primary(partition)) &&
        std::all_of(backups.begin(), backups.end(), is_lost)) {
      lost_partitions.insert(static_cast<uint32_t>(partition));
    }
  }
  Note(absl::StrCat("the scheduler and ", absl::StrJoin(lost_names, ", "),
                    " lose all data: partitions ", absl::StrJoin(lost_partitions, ", ")));
  ++state_losses_;
  cluster_.scheduler().LoseState();
  cluster_.scheduler().ExpectRefusal(std::move(lost_partitions));
  for (const int server : lost) {
    disturbed_.insert(server);
    cluster_.KillServer(server);
    cluster_.WipeDisk(server);
    StartServerIn(server);
  }
  StartSchedulerIn(milliseconds(1500));
}

void FaultInjector::DisturbNetwork() {
  const bool gently = schedule_.durability == MEMORY;
  NetworkFaults faults;
  if (random_.Chance(0.5)) faults.lose_request = random_.Chance(0.5) ? 0.02 : gently ? 0.05 : 0.25;
  if (random_.Chance(0.5)) faults.lose_reply = random_.Chance(0.5) ? 0.02 : gently ? 0.05 : 0.25;
  if (random_.Chance(0.5)) faults.duplicate = random_.Chance(0.5) ? 0.05 : 0.3;
  if (random_.Chance(0.5)) faults.slow = gently ? 0.02 : 0.1;
  if (gently) faults.slow_delay = milliseconds(200);
  if (random_.Chance(0.3)) faults.max_delay = milliseconds(30);
  Note(absl::StrCat("the network loses ", faults.lose_request, " of requests, ", faults.lose_reply,
                    " of replies, doubles ", faults.duplicate, ", holds up ", faults.slow));
  network_.faults() = faults;
  const uint64_t period = ++network_period_;
  In(milliseconds(500), milliseconds(5000), [this, period] {
    if (period == network_period_) network_.faults() = NetworkFaults();
  });
}

}  // namespace pawl
