#include "scheduler/placement/replica_director.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/placement/placement_step.h"
#include "scheduler/placement/stored_replica_set.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxPartitionsNamed = 8;

// Added to how a server left.
constexpr char kDamaged[] = "; it has come back, and its data directory is damaged";

std::string PartitionsText(const std::vector<uint32_t>& partitions) {
  const size_t named = std::min(partitions.size(), kMaxPartitionsNamed);
  std::string text =
      absl::StrCat(partitions.size() == 1 ? "partition " : "partitions ",
                   absl::StrJoin(partitions.begin(),
                                 partitions.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < partitions.size()) absl::StrAppend(&text, ", ... (", partitions.size(), " in all)");
  return text;
}

ClusterEvent EventOf(EventKind kind, ServerNumber server, ServerNumber from) {
  ClusterEvent event;
  event.set_kind(kind);
  event.set_node(absl::StrCat("server-", server));
  if (from != kNoServer) event.set_from(absl::StrCat("server-", from));
  return event;
}

}  // namespace

uint64_t ReplicaDirector::primaries_since() const {
  uint64_t since = 0;
  for (const ReplicaSet& set : placement_.partitions)
    since = std::max({since, set.primary_since, set.yielding_since});
  return since;
}

bool ReplicaDirector::HasAllPrimaries() const {
  return placed() && absl::c_none_of(placement_.partitions, [](const ReplicaSet& set) {
           return set.primary == kNoServer;
         });
}

void ReplicaDirector::PlaceFirst(const std::vector<const Node*>& servers, uint32_t replicas) {
  const std::vector<PlacementServer> active = Present(servers);
  // An operator may have forced a start with fewer servers. Later servers bring the other replicas.
  replicas = std::min(replicas, static_cast<uint32_t>(active.size()));
  PlaceFirstInZones(active, options_.partitions, replicas, placement_);
  spdlog::info("routing: epoch {}, {} partitions with {} replicas on {} servers", epoch(),
               options_.partitions, replicas, active.size());
  LogRedundancy();
}

std::optional<std::string> ReplicaDirector::OnServersGone(const std::vector<Node>& servers,
                                                          const std::vector<std::string>& how,
                                                          bool dead, bool nothing_yet,
                                                          MonotonicTime now) {
  if (!placed()) return std::nullopt;
  std::vector<ServerNumber> numbers;
  for (const Node& server : servers) numbers.push_back(server.number);
  const std::vector<ReplicaSet> before = placement_.partitions;
  target_.reset();
  // The routing table names fewer servers, even if they had no replicas.
  if (!RemoveServers(numbers, Unsettled(now), placement_)) ++placement_.epoch;
  for (const ServerNumber server : numbers) settled_from_.erase(server);
  std::vector<uint32_t> waiting;
  bool some_may_return = dead;
  std::set<std::string> texts;
  for (size_t i = 0; i < servers.size(); ++i)
    departures_[numbers[i]] = absl::StrCat(NodeText(servers[i]), " ", how[i]);
  ForgetDepartures();
  for (uint32_t partition = 0; partition < placement_.partitions.size(); ++partition) {
    const ReplicaSet& set = placement_.partitions[partition];
    if (!set.IsUnavailable() || !waiting_since_.emplace(partition, now).second) continue;
    waiting.push_back(partition);
    for (const ServerNumber server : set.last_in_sync) {
      texts.insert(DepartureOf(server));
      // Servers that went earlier were only silent.
      some_may_return = some_may_return || !absl::c_linear_search(numbers, server);
    }
  }
  spdlog::warn("routing: epoch {} without {}", epoch(),
               absl::StrJoin(numbers, ", ", [](std::string* out, uint32_t n) {
                 absl::StrAppend(out, "server-", n);
               }));
  NotePromotions(before);
  LogRedundancy();
  if (waiting.empty()) return std::nullopt;
  const std::string loss = LossText(waiting, absl::StrJoin(texts, "; "));
  if (!some_may_return && !options_.durable && !nothing_yet)
    return absl::StrCat(loss, ", and durability is MEMORY");
  spdlog::warn("{}; waiting for them", loss);
  return std::nullopt;
}

std::optional<std::string> ReplicaDirector::OnServerJoined(const Node& server,
                                                           std::vector<uint32_t> recovered,
                                                           bool nothing_yet) {
  if (!placed()) return std::nullopt;
  absl::c_sort(recovered);
  target_.reset();
  // A server without data has no promises of a former incarnation to wait for.
  if (!recovered.empty())
    settled_from_[server.number] = server.registered_at + options_.lease + kSettlingMargin;
  const Recovery recovery = RecoverServer(server.number, recovered, nothing_yet, placement_);
  // The routing table names a new server, or a new incarnation.
  if (!recovery.changed) ++placement_.epoch;
  if (nothing_yet) pawl::RestartEmpty({server.number}, /*on_any=*/false, placement_);
  ForgetRecovered();
  if (damaged_returns_.erase(server.number) > 0 && recovered.empty())
    spdlog::warn("{} has returned without its data, which is damaged", server.name);
  std::string how;
  if (const auto it = departures_.find(server.number); it != departures_.end()) {
    how = it->second;
    departures_.erase(it);
  }
  spdlog::info("routing: epoch {} with {}, which brings {} partitions", epoch(), server.name,
               recovered.size());
  LogRedundancy();
  if (recovery.lost.empty()) return std::nullopt;
  return absl::StrCat(LossText(recovery.lost, how), ", and it has come back without them");
}

absl::Status ReplicaDirector::CheckReturnsWithoutData(const Node& server, uint64_t process_nonce,
                                                      const std::vector<const Node*>& servers,
                                                      MonotonicTime now) {
  DamagedReturn& wanted = damaged_returns_[server.number];
  const bool is_first = wanted.process_nonce != process_nonce;
  if (is_first) wanted = {process_nonce, now};
  // A server that is merely not known to be dead does not count.
  std::set<ServerNumber> present;
  for (const Node* other : servers) {
    if (other->last_heard > wanted.since) present.insert(other->number);
  }
  const std::vector<uint32_t> partitions = HeldOnlyBy(server.number, present, placement_);
  if (partitions.empty()) return absl::OkStatus();
  // For the error that the job fails with if it waits too long.
  if (const auto it = departures_.find(server.number);
      it != departures_.end() && !absl::StrContains(it->second, kDamaged)) {
    absl::StrAppend(&it->second, kDamaged);
  }
  std::set<std::string> others;
  for (const uint32_t partition : partitions) {
    for (const ServerNumber other : placement_.partitions[partition].last_in_sync) {
      if (other != server.number) others.insert(absl::StrCat("server-", other));
    }
  }
  absl::Status refused = absl::UnavailableError(
      absl::StrCat("the data directory of ", server.name,
                   " is damaged, and no server that sends heartbeats has ",
                   "every acknowledged push of ", PartitionsText(partitions), "; ",
                   others.empty() ? "no other server ever had it"
                                  : absl::StrCat("waiting for ", absl::StrJoin(others, ", "))));
  if (is_first) spdlog::warn("{}", std::string(refused.message()));
  return refused;
}

bool ReplicaDirector::OnLearnersCaughtUp(const Node& primary, const HeartbeatRequest& report,
                                         const Membership& membership) {
  bool changed = false;
  for (const CaughtUpReplica& replica : report.caught_up()) {
    const Node* const learner = membership.FindByName(replica.node());
    if (learner == nullptr || learner->gone || learner->role != SERVER_ROLE ||
        learner->incarnation != replica.incarnation()) {
      continue;
    }
    // Uses the report's own epoch, since the report may be late.
    if (!CaughtUp(replica.partition(), primary.number, learner->number, report.routing_epoch(),
                  placement_))
      continue;
    changed = true;
    progress_.OnCopied(meter_.bytes(replica.partition()));
    const ReplicaSet& set = placement_.partitions[replica.partition()];
    ServerNumber from = set.leaving;
    if (target_.has_value() && !target_->partitions[replica.partition()].empty()) {
      const std::vector<ServerNumber>& wanted = target_->partitions[replica.partition()];
      const auto is_superfluous = [&](ServerNumber other) {
        return !absl::c_linear_search(wanted, other);
      };
      if (is_superfluous(set.primary)) from = set.primary;
      for (const ServerNumber backup : set.backups) {
        if (is_superfluous(backup)) from = backup;
      }
    }
    AddEvent(REPLICA_MOVED, learner->number, from, replica.partition(), std::nullopt);
  }
  if (changed) LogRedundancy();
  return changed;
}

bool ReplicaDirector::DropSilent(const Node& primary, const HeartbeatRequest& report,
                                 const Membership& membership, MonotonicTime now) {
  std::vector<SilentFollower> silent;
  for (const SilentServer& server : report.silent()) {
    const Node* const follower = membership.FindByName(server.node());
    if (follower == nullptr || follower->gone || follower->role != SERVER_ROLE ||
        follower->number == primary.number || follower->incarnation != server.incarnation()) {
      continue;
    }
    silent.push_back({follower->number});
    if (server.has_partition()) silent.back().partition = server.partition();
    unreachable_pairs_.Note(primary.number, follower->number, now);
  }
  // Almost every heartbeat.
  if (silent.empty()) return false;
  const std::set<ServerNumber> dropped =
      pawl::DropSilent(primary.number, silent, report.routing_epoch(), placement_);
  if (dropped.empty()) return false;
  for (const ServerNumber server : dropped) {
    spdlog::warn(
        "routing: epoch {}: server-{} does not accept what {} sends and loses replicas of that "
        "server's partitions",
        epoch(), server, primary.name);
    events_.Add(EventOf(REPLICAS_DROPPED, server, primary.number));
  }
  LogRedundancy();
  return true;
}

bool ReplicaDirector::RestartEmpty(const std::vector<const Node*>& servers) {
  std::vector<ServerNumber> numbers;
  for (const Node* server : servers) numbers.push_back(server->number);
  if (!pawl::RestartEmpty(numbers, /*on_any=*/!options_.durable, placement_)) return false;
  target_.reset();
  ForgetRecovered();
  ForgetDepartures();
  spdlog::info("routing: epoch {}: the lost partitions were empty, and restart empty", epoch());
  LogRedundancy();
  return true;
}

void ReplicaDirector::ForgetRecovered() {
  std::erase_if(waiting_since_, [&](const auto& waiting) {
    return placement_.partitions[waiting.first].primary != kNoServer;
  });
}

void ReplicaDirector::ForgetDepartures() {
  std::set<ServerNumber> needed;
  for (const ReplicaSet& set : placement_.partitions)
    needed.insert(set.last_in_sync.begin(), set.last_in_sync.end());
  std::erase_if(departures_, [&](const auto& gone) { return !needed.contains(gone.first); });
}

std::string ReplicaDirector::DepartureOf(ServerNumber server) const {
  const auto it = departures_.find(server);
  return it != departures_.end() ? it->second : absl::StrCat("server-", server, " is away");
}

Confirmation ReplicaDirector::Confirm(const Node& server, uint64_t epoch) {
  if (!placed()) return {};
  return pawl::Confirm(server.number, epoch, options_.min_in_sync, placement_);
}

absl::StatusOr<uint32_t> ReplicaDirector::ReleaseRetained(const Node& server, bool force,
                                                          std::optional<std::string>& loss) {
  const RetainedReplicas retained = RetainedBy(server.number, placement_);
  if (!retained.needed.empty() && !force) {
    return absl::FailedPreconditionError(
        absl::StrCat("no other server is known to have every acknowledged push that ", server.name,
                     " has of ", PartitionsText(retained.needed),
                     "; wait until another server has them, or use --force to give them up"));
  }
  const std::vector<uint32_t> lost = ReleaseServer(server.number, force, placement_);
  if (!lost.empty())
    loss = absl::StrCat(
        LossText(lost, absl::StrCat("an operator released what ", server.name, " retained")));
  spdlog::info("routing: epoch {}: {} may delete {} retained replicas", epoch(), server.name,
               retained.partitions.size());
  return static_cast<uint32_t>(retained.partitions.size());
}

std::vector<PlacementServer> ReplicaDirector::Present(const std::vector<const Node*>& servers) {
  std::set<ServerNumber> members;
  for (const ReplicaSet& set : placement_.partitions) {
    members.insert(set.primary);
    members.insert(set.yielding);
    members.insert(set.backups.begin(), set.backups.end());
    for (const ReplicaSet::Learner& learner : set.learners) members.insert(learner.server);
  }
  std::vector<PlacementServer> present;
  uint32_t active = 0;
  for (const Node* server : servers) {
    const bool writes = server->disk_failure.empty();
    // A server that cannot write its log must lose its replicas.
    present.push_back(
        {server->number, server->draining || !writes, server->adopted_epoch, server->zone});
    present.back().writes = writes;
    active += !server->draining && members.contains(server->number);
  }
  standing_by_.clear();
  for (PlacementServer& server : present) {
    if (options_.elastic || server.draining || members.contains(server.number)) continue;
    if (active < wanted_servers_) {
      ++active;
      continue;
    }
    server.draining = true;
    standing_by_.insert(server.number);
  }
  return present;
}

std::vector<ServerNumber> ReplicaDirector::Unsettled(MonotonicTime now) const {
  std::vector<ServerNumber> unsettled;
  for (const auto& [server, from] : settled_from_) {
    if (now < from) unsettled.push_back(server);
  }
  return unsettled;
}

bool ReplicaDirector::handing_over() const {
  return absl::c_any_of(placement_.partitions,
                        [](const ReplicaSet& set) { return set.yielding != kNoServer; });
}

bool ReplicaDirector::CompleteHandovers(const std::vector<const Node*>& servers) {
  if (!placed()) return false;
  std::map<uint32_t, ServerNumber> yielding;
  for (uint32_t p = 0; p < placement_.partitions.size(); ++p) {
    if (placement_.partitions[p].yielding != kNoServer)
      yielding[p] = placement_.partitions[p].yielding;
  }
  if (yielding.empty() || !pawl::CompleteHandovers(Present(servers), placement_)) return false;
  for (const auto& [partition, from] : yielding) {
    const ReplicaSet& set = placement_.partitions[partition];
    if (set.primary != kNoServer) handovers_[partition] = {from, set.primary_since};
  }
  return true;
}

bool ReplicaDirector::Step(const std::vector<const Node*>& servers, std::optional<StepScope> scope,
                           MonotonicTime now) {
  if (!placed()) return false;
  bool changed = CompleteHandovers(servers);
  std::vector<PlacementServer> present = Present(servers);
  changed |= pawl::ReleaseRetained(present, options_.replicas, placement_);
  if (!scope.has_value()) return changed;
  const std::vector<ServerNumber> unsettled = Unsettled(now);
  for (PlacementServer& server : present) {
    server.settled = !absl::c_linear_search(unsettled, server.number);
  }
  UpdateTarget(present, now);
  changed |= StepTowards(*target_, present, unreachable_pairs_.Current(now), placement_, *scope);
  progress_.SetRemaining(RemainingMoves(*target_, placement_).partitions.size(), now);
  return changed;
}

void ReplicaDirector::UpdateTarget(const std::vector<PlacementServer>& servers, MonotonicTime now) {
  const auto same = [](const PlacementServer& a, const PlacementServer& b) {
    return a.number == b.number && a.draining == b.draining && a.zone == b.zone;
  };
  const bool as_before = target_.has_value() && absl::c_equal(servers, target_servers_, same);
  if (as_before) {
    if (!IsAtTarget() || (loads_at_.has_value() && now - *loads_at_ < kLoadsInterval)) return;
    loads_at_ = now;
    PartitionLoads fresh = meter_.Loads();
    if (fresh.empty()) return;
    // Loads fluctuate: only a clear improvement is worth a move.
    PlacementTarget better = ComputeTarget(servers, options_.replicas, fresh, placement_);
    if (better.relief < kTolerance) return;
    spdlog::info("placement: moving partitions to balance their loads");
    loads_ = std::move(fresh);
    target_ = std::move(better);
    return;
  }
  if (PartitionLoads fresh = meter_.Loads(); !fresh.empty()) loads_ = std::move(fresh);
  target_ = ComputeTarget(servers, options_.replicas, loads_, placement_);
  target_servers_ = servers;
  loads_at_ = now;
}

bool ReplicaDirector::IsAtTarget() const {
  if (!target_.has_value()) return false;
  const MovesLeft left = RemainingMoves(*target_, placement_);
  return left.partitions.empty() && left.in_progress == 0 && left.handovers == 0;
}

bool ReplicaDirector::OnFigures(const Node& server, const HeartbeatRequest& report,
                                MonotonicTime now) {
  for (const PartitionFigures& figures : report.partitions())
    meter_.Note(server.incarnation, figures, now);
  bool noted = false;
  for (const Takeover& takeover : report.takeovers()) {
    const auto it = handovers_.find(takeover.partition());
    if (it == handovers_.end() || it->second.primary_since != takeover.primary_since()) continue;
    progress_.OnPaused(takeover.pause_ms());
    AddEvent(PRIMARY_MOVED, server.number, it->second.from, takeover.partition(),
             takeover.pause_ms());
    handovers_.erase(it);
    noted = true;
  }
  return noted;
}

MovesStatus ReplicaDirector::Moves(MonotonicTime now) const {
  MovesStatus status;
  if (target_.has_value()) {
    const MovesLeft left = RemainingMoves(*target_, placement_);
    status.set_replicas_left(static_cast<uint32_t>(left.partitions.size()));
    uint64_t bytes = 0;
    for (const uint32_t partition : left.partitions) bytes += meter_.bytes(partition);
    status.set_bytes_left(bytes);
    status.set_in_progress(left.in_progress);
    status.set_handovers_left(left.handovers);
    status.set_sharing_a_zone(target_->sharing_a_zone);
    status.set_settled(IsAtTarget());
  }
  progress_.Fill(now, status);
  return status;
}

std::vector<PushWait> ReplicaDirector::PushWaits() const {
  std::map<PushWaitReason, std::vector<uint32_t>> waiting;
  for (uint32_t partition = 0; partition < placement_.partitions.size(); ++partition) {
    const ReplicaSet& set = placement_.partitions[partition];
    if (set.primary == kNoServer) {
      waiting[NO_PRIMARY].push_back(partition);
    } else if (set.in_sync() < options_.min_in_sync) {
      waiting[TOO_FEW_IN_SYNC].push_back(partition);
    } else if (set.IsUnconfirmed()) {
      waiting[ROUTING_NOT_CONFIRMED].push_back(partition);
    }
  }
  std::vector<PushWait> waits;
  for (const auto& [reason, partitions] : waiting) {
    PushWait& wait = waits.emplace_back();
    wait.set_reason(reason);
    wait.set_partitions(static_cast<uint32_t>(partitions.size()));
    wait.set_text(PartitionsText(partitions));
  }
  return waits;
}

void ReplicaDirector::AddEvent(EventKind kind, ServerNumber server, ServerNumber from,
                               uint32_t partition, std::optional<uint32_t> pause_ms) {
  ClusterEvent event = EventOf(kind, server, from);
  event.set_partition(partition);
  event.set_bytes(meter_.bytes(partition));
  if (pause_ms.has_value()) event.set_pause_ms(*pause_ms);
  events_.Add(std::move(event));
}

void ReplicaDirector::NotePromotions(const std::vector<ReplicaSet>& before) {
  std::map<std::pair<ServerNumber, ServerNumber>, std::vector<uint32_t>> promoted;
  for (uint32_t p = 0; p < before.size(); ++p) {
    const ServerNumber is = placement_.partitions[p].primary;
    if (is == kNoServer || is == before[p].primary) continue;
    if (before[p].yielding != kNoServer && is != before[p].yielding) {
      handovers_[p] = {before[p].yielding, placement_.partitions[p].primary_since};
    } else {
      promoted[{is, before[p].primary}].push_back(p);
    }
  }
  for (const auto& [servers, partitions] : promoted) {
    ClusterEvent event = EventOf(PRIMARY_PROMOTED, servers.first, servers.second);
    event.set_partition(partitions.front());
    event.set_text(PartitionsText(partitions));
    events_.Add(std::move(event));
  }
}

std::optional<std::string> ReplicaDirector::CheckRecovery(MonotonicTime now) const {
  std::vector<uint32_t> late;
  std::set<std::string> how;
  for (const auto& [partition, since] : waiting_since_) {
    if (now - since <= options_.recovery_timeout) continue;
    late.push_back(partition);
    for (const ServerNumber server : placement_.partitions[partition].last_in_sync)
      how.insert(DepartureOf(server));
  }
  if (late.empty()) return std::nullopt;
  return absl::StrCat(LossText(late, absl::StrJoin(how, "; ")),
                      absl::StrFormat(", and none of those has come back within %.1f s",
                                      Seconds(options_.recovery_timeout)));
}

void ReplicaDirector::LogRedundancy() {
  const bool is_short = absl::c_any_of(placement_.partitions, [&](const ReplicaSet& set) {
    return set.in_sync() < options_.replicas;
  });
  if (std::exchange(short_of_replicas_, is_short) && !is_short) {
    spdlog::info("routing: epoch {}, every partition has {} replicas in sync again", epoch(),
                 options_.replicas);
  }
}

std::string ReplicaDirector::LossText(const std::vector<uint32_t>& partitions,
                                      const std::string& how) const {
  return absl::StrCat(how, "; ", PartitionsText(partitions),
                      partitions.size() == 1 ? " is" : " are", " nowhere else");
}

StoredPlacement ReplicaDirector::Save() const {
  StoredPlacement stored;
  stored.set_epoch(placement_.epoch);
  for (const ReplicaSet& set : placement_.partitions) *stored.add_partitions() = ToStored(set);
  for (const auto& [number, how] : departures_) (*stored.mutable_departures())[number] = how;
  return stored;
}

void ReplicaDirector::Restore(const StoredPlacement& stored, MonotonicTime now) {
  placement_.epoch = stored.epoch();
  for (const StoredReplicaSet& from : stored.partitions()) {
    placement_.partitions.push_back(FromStored(from));
    if (placement_.partitions.back().IsUnavailable())
      waiting_since_[static_cast<uint32_t>(placement_.partitions.size() - 1)] = now;
  }
  for (const auto& [number, how] : stored.departures()) departures_[number] = how;
  LogRedundancy();
}

}  // namespace pawl
