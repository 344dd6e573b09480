#include "scheduler/replica_director.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxPartitionsNamed = 8;

std::string PartitionsText(const std::vector<uint32_t>& partitions) {
  const size_t named = std::min(partitions.size(), kMaxPartitionsNamed);
  std::string text = absl::StrCat(partitions.size() == 1 ? "partition " : "partitions ",
                                  absl::StrJoin(partitions.begin(), partitions.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < partitions.size()) absl::StrAppend(&text, ", ... (", partitions.size(), " in all)");
  return text;
}

}  // namespace

uint64_t ReplicaDirector::primaries_since() const {
  uint64_t since = 0;
  for (const ReplicaSet& set : placement_.partitions) since = std::max(since, set.primary_since);
  return since;
}

bool ReplicaDirector::EveryPartitionHasAPrimary() const {
  return placed() && std::none_of(placement_.partitions.begin(), placement_.partitions.end(),
                                  [](const ReplicaSet& set) { return set.primary == kNoServer; });
}

void ReplicaDirector::PlaceFirst(const std::vector<const Node*>& servers, uint32_t replicas) {
  std::vector<ServerNumber> numbers;
  for (const Node* server : servers) numbers.push_back(server->number);
  pawl::PlaceFirst(numbers, options_.partitions, replicas, placement_);
  spdlog::info("routing: epoch {}, {} partitions with {} replicas on {} servers", epoch(), options_.partitions, replicas,
               numbers.size());
  NoteRedundancy();
}

std::optional<std::string> ReplicaDirector::ServersAreGone(const std::vector<Node>& servers,
                                                           const std::vector<std::string>& how, bool nothing_yet,
                                                           MonotonicTime now) {
  if (!placed()) return std::nullopt;
  std::vector<ServerNumber> numbers;
  for (const Node& server : servers) numbers.push_back(server.number);
  // The table names fewer servers, even if they had nothing.
  if (!RemoveServers(numbers, placement_)) ++placement_.epoch;
  std::vector<uint32_t> waiting;
  std::set<std::string> texts;
  for (uint32_t partition = 0; partition < placement_.partitions.size(); ++partition) {
    for (const ServerNumber holder : placement_.partitions[partition].holders) {
      const auto it = std::find(numbers.begin(), numbers.end(), holder);
      if (it == numbers.end()) continue;
      const auto i = static_cast<size_t>(it - numbers.begin());
      how_gone_[holder] = absl::StrCat(NodeText(servers[i]), " ", how[i]);
      texts.insert(how_gone_[holder]);
      if (waiting_since_.emplace(partition, now).second) waiting.push_back(partition);
    }
  }
  spdlog::warn("routing: epoch {} without {}", epoch(), absl::StrJoin(numbers, ", ", [](std::string* out, uint32_t n) {
                 absl::StrAppend(out, "server-", n);
               }));
  NoteRedundancy();
  if (waiting.empty()) return std::nullopt;
  const std::string loss = LossText(waiting, absl::StrJoin(texts, "; "));
  if (!options_.durable && !nothing_yet) return absl::StrCat(loss, ", and durability is MEMORY");
  spdlog::warn("{}; waiting for them", loss);
  return std::nullopt;
}

std::optional<std::string> ReplicaDirector::ServerIsThere(const Node& server, std::vector<uint32_t> recovered,
                                                          bool nothing_yet) {
  if (!placed()) return std::nullopt;
  std::sort(recovered.begin(), recovered.end());
  const Recovery recovery = RecoverServer(server.number, recovered, nothing_yet, placement_);
  // The table names a server more, or another life of it.
  if (!recovery.changed) ++placement_.epoch;
  ForgetWhoWaitsNoMore();
  std::string how;
  if (const auto it = how_gone_.find(server.number); it != how_gone_.end()) {
    how = it->second;
    how_gone_.erase(it);
  }
  spdlog::info("routing: epoch {} with {}, which has {} partitions", epoch(), server.name, recovered.size());
  NoteRedundancy();
  if (recovery.lost.empty()) return std::nullopt;
  return absl::StrCat(LossText(recovery.lost, how), ", and it has come back without them");
}

bool ReplicaDirector::LearnersHaveCaughtUp(const Node& primary, const HeartbeatRequest& report,
                                           const Membership& membership) {
  bool changed = false;
  for (const CaughtUpReplica& replica : report.caught_up()) {
    const Node* const learner = membership.FindByName(replica.node());
    if (learner == nullptr || learner->gone || learner->role != SERVER_ROLE ||
        learner->incarnation != replica.incarnation()) {
      continue;
    }
    // By the report's own epoch: one that comes late speaks of its time.
    changed |= CaughtUp(replica.partition(), primary.number, learner->number, report.routing_epoch(), placement_);
  }
  if (changed) NoteRedundancy();
  return changed;
}

bool ReplicaDirector::BeginAnew(const std::vector<const Node*>& servers) {
  if (options_.durable) return false;
  std::vector<ServerNumber> numbers;
  for (const Node* server : servers) numbers.push_back(server->number);
  if (!pawl::BeginAnew(numbers, placement_)) return false;
  ForgetWhoWaitsNoMore();
  how_gone_.clear();
  spdlog::info("routing: epoch {}: what was lost had nothing in it yet, and begins anew", epoch());
  NoteRedundancy();
  return true;
}

void ReplicaDirector::ForgetWhoWaitsNoMore() {
  for (auto it = waiting_since_.begin(); it != waiting_since_.end();) {
    it = placement_.partitions[it->first].primary != kNoServer ? waiting_since_.erase(it) : std::next(it);
  }
}

bool ReplicaDirector::Step(const std::vector<const Node*>& servers, bool move) {
  if (!placed()) return false;
  std::vector<PlacementServer> present;
  for (const Node* server : servers) present.push_back({server->number, server->draining, server->adopted_epoch});
  return PlacementStep(present, options_.replicas, move, placement_);
}

std::optional<std::string> ReplicaDirector::CheckRecovery(MonotonicTime now) const {
  std::vector<uint32_t> late;
  std::set<std::string> how;
  for (const auto& [partition, since] : waiting_since_) {
    if (now - since <= options_.recovery_timeout) continue;
    late.push_back(partition);
    for (const ServerNumber holder : placement_.partitions[partition].holders) {
      const auto it = how_gone_.find(holder);
      how.insert(it != how_gone_.end() ? it->second : absl::StrCat("server-", holder, " is away"));
    }
  }
  if (late.empty()) return std::nullopt;
  return absl::StrCat(LossText(late, absl::StrJoin(how, "; ")),
                      absl::StrFormat(", and none of those has come back within %.1f s", Seconds(options_.recovery_timeout)));
}

void ReplicaDirector::NoteRedundancy() {
  const auto in_sync = [](const ReplicaSet& set) { return (set.primary != kNoServer) + set.backups.size(); };
  const bool is_short = std::any_of(placement_.partitions.begin(), placement_.partitions.end(),
                                    [&](const ReplicaSet& set) { return in_sync(set) < options_.replicas; });
  if (std::exchange(short_of_replicas_, is_short) && !is_short) {
    spdlog::info("routing: epoch {}, every partition has {} replicas in sync again", epoch(), options_.replicas);
  }
}

std::string ReplicaDirector::LossText(const std::vector<uint32_t>& partitions, const std::string& how) const {
  return absl::StrCat(how, "; ", PartitionsText(partitions), partitions.size() == 1 ? " is" : " are", " nowhere else");
}

StoredPlacement ReplicaDirector::Save() const {
  StoredPlacement stored;
  stored.set_epoch(placement_.epoch);
  for (const ReplicaSet& set : placement_.partitions) {
    StoredReplicaSet& to = *stored.add_partitions();
    to.set_primary(set.primary);
    to.set_primary_since(set.primary_since);
    for (const ServerNumber backup : set.backups) to.add_backups(backup);
    for (const ReplicaSet::Learner& learner : set.learners) {
      to.add_learners(learner.server);
      to.add_learners_since(learner.since);
    }
    for (const ServerNumber holder : set.holders) to.add_holders(holder);
    to.set_yielding(set.yielding);
    to.set_leaving(set.leaving);
    to.set_began(set.began);
  }
  for (const auto& [number, how] : how_gone_) (*stored.mutable_how_gone())[number] = how;
  return stored;
}

void ReplicaDirector::Restore(const StoredPlacement& stored, MonotonicTime now) {
  placement_.epoch = stored.epoch();
  for (const StoredReplicaSet& from : stored.partitions()) {
    ReplicaSet& set = placement_.partitions.emplace_back();
    set.primary = from.primary();
    set.primary_since = from.primary_since();
    set.backups.assign(from.backups().begin(), from.backups().end());
    for (int i = 0; i < from.learners_size(); ++i) set.learners.push_back({from.learners(i), from.learners_since(i)});
    set.holders.assign(from.holders().begin(), from.holders().end());
    set.yielding = from.yielding();
    set.leaving = from.leaving();
    set.began = from.began();
    if (!set.holders.empty()) waiting_since_[static_cast<uint32_t>(placement_.partitions.size() - 1)] = now;
  }
  for (const auto& [number, how] : stored.how_gone()) how_gone_[number] = how;
  NoteRedundancy();
}

}  // namespace pawl
