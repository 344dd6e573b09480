#include "scheduler/membership/logical_workers.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/membership/rank_placement.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// "rank 3 is", "ranks 0, 1 are"
std::string RanksText(const std::vector<FreeRank>& ranks) {
  const auto number = [](std::string* out, const FreeRank& rank) {
    absl::StrAppend(out, rank.rank);
  };
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", ", number),
                      ranks.size() == 1 ? " is" : " are");
}

}  // namespace

absl::Status LogicalWorkers::CheckJoin(const RegisterRequest& request,
                                       const std::string& former_name) const {
  if (request.logical_workers().empty() && !request.follows_assignment() && decided_ &&
      Predecessor(former_name).empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", total(), " ranks are assigned; ",
                     "name free ones in logical_workers to host them"));
  }
  std::vector<bool> is_requested(total());
  for (const uint32_t rank : request.logical_workers()) {
    if (rank >= total()) {
      return absl::OutOfRangeError(
          absl::StrCat("logical_workers names rank ", rank, "; the job's last is ", total() - 1));
    }
    if (is_requested[rank])
      return absl::InvalidArgumentError(
          absl::StrCat("logical_workers names rank ", rank, " twice"));
    is_requested[rank] = true;
    if (!HostOf(rank).empty() && HostOf(rank) != former_name) {
      return absl::AlreadyExistsError(absl::StrCat("rank ", rank, " is hosted by ", HostOf(rank)));
    }
  }
  return absl::OkStatus();
}

void LogicalWorkers::Join(const RegisterRequest& request, const Node& worker) {
  const bool requests_ranks = !request.logical_workers().empty();
  Host& host = hosts_.emplace_back();
  host.saved.set_name(worker.name);
  host.saved.set_incarnation(worker.incarnation);
  host.saved.set_requests_ranks(requests_ranks);
  host.saved.set_follows(request.follows_assignment() && !requests_ranks);
  host.version = ++version_;
  if (host.saved.follows()) return;
  // It keeps the ranks that it gets now, or in MaybeDecide.
  const std::string predecessor = !requests_ranks && decided_ ? Predecessor(worker.name) : "";
  for (const uint32_t rank : request.logical_workers()) Assign(host, ranks_[rank], nullptr);
  for (Rank& rank : ranks_) {
    // The servers may have released the finished ones in their former incarnation.
    const bool is_own = rank.saved.finished() && rank.saved.host() == worker.name;
    if (is_own || (rank.IsOrphaned() && rank.saved.last_host() == predecessor))
      Assign(host, rank, nullptr);
  }
}

bool LogicalWorkers::MarkReady(const std::string& worker) {
  Host* const host = Find(worker);
  if (host == nullptr || host->saved.ready()) return false;
  host->saved.set_ready(true);
  return true;
}

bool LogicalWorkers::Drain(const std::string& worker) {
  Host* const host = Find(worker);
  if (host == nullptr || !host->saved.follows() || host->saved.draining()) return false;
  host->saved.set_draining(true);
  return true;
}

std::vector<FreeRank> LogicalWorkers::Leave(const Node& worker, const std::string& how, bool dead,
                                            MonotonicTime now) {
  NoteProgress(worker.progress);
  std::vector<FreeRank> free;
  for (uint32_t i = 0; i < total(); ++i) {
    Rank& rank = ranks_[i];
    if (HostOf(i) != worker.name || rank.saved.finished()) continue;
    free.push_back({i, rank.saved.incarnation()});
    rank.died_without_step = dead && !rank.HasProgressed();
    rank.CountSteps();
    const bool died_before =
        rank.losses_without_a_step > 0 && rank.saved.last_host() == worker.name;
    if (rank.died_without_step && rank.losses_without_a_step++ == 0) rank.first_loss = now;
    // A worker that keeps dying with the rank must not stall the others by being restarted.
    const bool is_reserved = dead && !rank.saved.leaving() && !died_before;
    rank.Free(absl::StrCat(NodeText(worker), " ", how), dead || !options_.serve_only, is_reserved,
              now);
  }
  std::erase_if(hosts_, [&](const Host& host) { return host.saved.name() == worker.name; });
  if (!free.empty()) spdlog::warn("{} {}; {} free", NodeText(worker), how, RanksText(free));
  return free;
}

std::vector<FreeRank> LogicalWorkers::GiveUp(const Node& worker, const std::vector<FreeRank>& ranks,
                                             MonotonicTime now) {
  std::vector<FreeRank> given_up;
  for (const FreeRank& one : ranks) {
    if (one.rank >= total() || HostOf(one.rank) != worker.name || IsFinished(one.rank)) continue;
    Rank& rank = ranks_[one.rank];
    if (rank.saved.incarnation() != one.incarnation) continue;
    rank.CountSteps();
    rank.died_without_step = false;
    rank.Free(absl::StrCat(NodeText(worker), " gave it up"), /*must_return=*/true,
              /*is_reserved=*/false, now);
    given_up.push_back(one);
  }
  return given_up;
}

std::vector<FreeRank> LogicalWorkers::Finish(const std::string& worker,
                                             absl::Span<const uint32_t> ranks) {
  std::vector<FreeRank> finished;
  for (uint32_t i = 0; i < total(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.saved.host() != worker) continue;
    if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), i) == ranks.end()) continue;
    rank.saved.set_finished(true);
    rank.saved.set_leaving(false);
    finished.push_back({i, rank.saved.incarnation()});
  }
  return finished;
}

bool LogicalWorkers::MarkTold(const std::string& worker) {
  bool is_new = false;
  for (Rank& rank : ranks_) {
    if (rank.saved.host() != worker || rank.saved.leaving()) continue;
    is_new = is_new || rank.saved.untold();
    rank.saved.set_untold(false);
  }
  return is_new;
}

std::vector<FreeRank> LogicalWorkers::LeavingUnheard(const std::string& worker,
                                                     uint64_t known_version) const {
  std::vector<FreeRank> unheard;
  for (uint32_t i = 0; i < total(); ++i) {
    const Rank& rank = ranks_[i];
    // Answers have the ranks of their version. An answer may be lost, and a call that waits while a
    // checkpoint loads gets one in which a rank is already missing.
    const bool is_newer = rank.saved.given_version() > known_version;
    if (rank.saved.host() == worker && rank.saved.leaving() && (rank.saved.untold() || is_newer))
      unheard.push_back({i, rank.saved.incarnation()});
  }
  return unheard;
}

void LogicalWorkers::NoteProgress(const WorkerProgress& progress) {
  for (const RankProgress& rank : progress.ranks()) {
    if (rank.rank() >= total()) continue;
    StoredRank& known = ranks_[rank.rank()].saved;
    if (known.progress().steps() <= rank.steps()) *known.mutable_progress() = rank;
  }
}

std::vector<std::string> LogicalWorkers::Place(MonotonicTime now,
                                               const std::function<uint64_t()>& next_incarnation) {
  const uint64_t before = version_;
  MaybeDecide(next_incarnation);
  if (decided_) {
    AssignToReturnedAndIdle(next_incarnation);
    ShareAmongFollowers(now, next_incarnation);
  }
  std::vector<std::string> changed;
  for (const Host& host : hosts_) {
    if (host.version > before) changed.push_back(host.saved.name());
  }
  std::map<std::string, std::vector<FreeRank>> gained;
  for (uint32_t rank = 0; rank < total(); ++rank) {
    if (ranks_[rank].saved.given_version() > before) gained[HostOf(rank)].push_back({rank});
  }
  for (const auto& [worker, ranks] : gained)
    spdlog::info("{} given to {}", RanksText(ranks), worker);
  return changed;
}

void LogicalWorkers::Assign(Host& host, Rank& rank,
                            const std::function<uint64_t()>& next_incarnation) {
  rank.saved.set_host(host.saved.name());
  rank.saved.set_incarnation(host.saved.follows() ? next_incarnation() : host.saved.incarnation());
  rank.saved.set_leaving(false);
  rank.CountSteps();
  host.version = ++version_;
  rank.saved.set_given_version(host.version);
  rank.saved.set_untold(true);
}

void LogicalWorkers::MaybeDecide(const std::function<uint64_t()>& next_incarnation) {
  if (decided_) return;
  uint32_t there = 0;
  std::vector<Host*> takers;
  for (Host& host : hosts_) {
    if (host.saved.draining()) continue;
    ++there;
    if (!host.saved.requests_ranks()) takers.push_back(&host);
  }
  if (there < wanted_workers_) return;
  // Without --workers, the ranks wait for a worker without requests.
  if (wanted_workers_ == 0 && takers.empty()) return;
  decided_ = true;
  RankPlacementInput input;
  input.workers = static_cast<uint32_t>(takers.size());
  for (const Rank& rank : ranks_) {
    input.hosts.push_back(rank.saved.host().empty() ? RankPlacementInput::kFree
                                                    : RankPlacementInput::kFixed);
  }
  const std::vector<uint32_t> placed = PlaceRanks(input);
  for (uint32_t i = 0; i < total(); ++i) {
    if (placed[i] < takers.size()) Assign(*takers[placed[i]], ranks_[i], next_incarnation);
  }
  // Workers without a rank also get a new version.
  for (Host& host : hosts_) {
    if (!host.saved.requests_ranks()) host.version = ++version_;
  }
}

void LogicalWorkers::AssignToReturnedAndIdle(const std::function<uint64_t()>& next_incarnation) {
  for (Rank& rank : ranks_) {
    if (!rank.IsOrphaned() || !rank.saved.is_reserved()) continue;
    Host* const last = Find(rank.saved.last_host());
    if (last != nullptr && last->saved.follows() && !last->saved.draining())
      Assign(*last, rank, next_incarnation);
  }
  const bool any_ready = std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) {
    return host.saved.follows() && host.saved.ready();
  });
  for (Host& host : hosts_) {
    if (!host.saved.follows() || host.saved.draining() || (any_ready && !host.saved.ready()))
      continue;
    if (HasUnfinishedRanks(host.saved.name())) continue;
    std::string predecessor;
    for (Rank& rank : ranks_) {
      // Ranks that were given up, or left on purpose, are shared in ShareAmongFollowers.
      if (!rank.IsOrphaned() || !rank.saved.is_reserved()) continue;
      if (predecessor.empty()) predecessor = rank.saved.last_host();
      if (rank.saved.last_host() == predecessor) Assign(host, rank, next_incarnation);
    }
  }
}

void LogicalWorkers::ShareAmongFollowers(MonotonicTime now,
                                         const std::function<uint64_t()>& next_incarnation) {
  const bool any_ready = std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) {
    return host.saved.follows() && host.saved.ready();
  });
  std::vector<Host*> takers;
  for (Host& host : hosts_) {
    if (!host.saved.follows() || host.saved.draining()) continue;
    if (!any_ready || host.saved.ready() || HasUnfinishedRanks(host.saved.name()))
      takers.push_back(&host);
  }
  if (takers.empty()) return;
  RankPlacementInput input;
  input.workers = static_cast<uint32_t>(takers.size());
  input.rebalance = rebalance_;
  for (const Rank& rank : ranks_) {
    uint32_t host = RankPlacementInput::kFixed;
    if (!rank.saved.finished() && rank.saved.host().empty()) {
      if (!IsReserved(rank, now)) host = RankPlacementInput::kFree;
    } else if (const Host* const present = Find(rank.saved.host());
               !rank.saved.finished() && present != nullptr && present->saved.follows()) {
      const auto taker = std::find(takers.begin(), takers.end(), present);
      // A rank that is being given up counts as free.
      host = rank.saved.leaving() || taker == takers.end()
                 ? RankPlacementInput::kFree
                 : static_cast<uint32_t>(taker - takers.begin());
    }
    input.hosts.push_back(host);
  }
  const std::vector<uint32_t> placed = PlaceRanks(input);
  for (uint32_t i = 0; i < total(); ++i) {
    if (placed[i] >= takers.size() || placed[i] == input.hosts[i]) continue;
    Rank& rank = ranks_[i];
    if (rank.saved.host().empty()) {
      Assign(*takers[placed[i]], rank, next_incarnation);
    } else if (!rank.saved.leaving()) {
      rank.saved.set_leaving(true);
      Find(rank.saved.host())->version = ++version_;
    }
  }
}

std::string LogicalWorkers::Predecessor(const std::string& worker) const {
  std::string first;
  for (const Rank& rank : ranks_) {
    if (!worker.empty() && rank.saved.host() == worker) return worker;
    if (!rank.IsOrphaned()) continue;
    if (rank.saved.last_host() == worker) return worker;
    if (first.empty()) first = rank.saved.last_host();
  }
  return first;
}

bool LogicalWorkers::IsReserved(const Rank& rank, MonotonicTime now) const {
  return rank.IsOrphaned() && rank.saved.is_reserved() &&
         now - rank.free_since <= options_.takeover_grace;
}

LogicalWorkers::Host* LogicalWorkers::Find(const std::string& worker) {
  return const_cast<Host*>(static_cast<const LogicalWorkers*>(this)->Find(worker));
}

const LogicalWorkers::Host* LogicalWorkers::Find(const std::string& worker) const {
  for (const Host& host : hosts_) {
    if (host.saved.name() == worker) return &host;
  }
  return nullptr;
}

bool LogicalWorkers::Follows(const std::string& worker) const {
  const Host* const host = Find(worker);
  return host != nullptr && host->saved.follows();
}

bool LogicalWorkers::HasUnfinishedRanks(const std::string& worker) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.saved.host() == worker && !rank.saved.finished();
  });
}

bool LogicalWorkers::AllFinished() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.saved.finished(); });
}

std::optional<GetAssignmentResponse> LogicalWorkers::AssignmentOf(const std::string& worker) const {
  const Host* const host = Find(worker);
  if (host == nullptr || (!decided_ && !host->saved.requests_ranks())) return std::nullopt;
  GetAssignmentResponse response;
  response.set_logical_workers_total(total());
  response.set_version(host->version);
  for (uint32_t i = 0; i < total(); ++i) {
    const StoredRank& rank = ranks_[i].saved;
    // A worker that is not a follower asks only once and may not know that the rank has finished.
    if (rank.host() != worker || rank.leaving() || (rank.finished() && host->saved.follows()))
      continue;
    LogicalWorkerAssignment& to = *response.add_logical_workers();
    to.set_rank(i);
    to.set_incarnation(rank.incarnation());
  }
  return response;
}

WorkerGroup::Hosts LogicalWorkers::Hosts() const {
  WorkerGroup::Hosts hosts;
  for (const Rank& rank : ranks_) {
    hosts.push_back(
        {rank.saved.host(), rank.saved.incarnation(), rank.saved.leaving(), rank.saved.finished()});
  }
  return hosts;
}

bool LogicalWorkers::AllHosted() const {
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const Rank& rank) { return rank.saved.host().empty(); });
}

bool LogicalWorkers::AnyHosted() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return !rank.saved.host().empty(); });
}

const std::string& LogicalWorkers::LastHostOf(uint32_t rank) const {
  return ranks_[rank].saved.host().empty() ? ranks_[rank].saved.last_host()
                                           : ranks_[rank].saved.host();
}

std::vector<FreeRank> LogicalWorkers::FreeRanks() const {
  std::vector<FreeRank> free;
  for (uint32_t rank = 0; rank < total(); ++rank) {
    if (ranks_[rank].IsOrphaned()) free.push_back({rank, ranks_[rank].saved.incarnation()});
  }
  return free;
}

std::vector<FreeRank> LogicalWorkers::RanksToRelease() const {
  if (AllFinished()) return {};
  std::vector<FreeRank> released = FreeRanks();
  for (uint32_t rank = 0; rank < total(); ++rank) {
    if (ranks_[rank].saved.finished()) released.push_back({rank, ranks_[rank].saved.incarnation()});
  }
  return released;
}

std::optional<std::string> LogicalWorkers::CheckReturn(MonotonicTime now,
                                                       MonotonicDuration timeout) const {
  std::vector<uint32_t> late;
  std::string how;
  for (uint32_t i = 0; i < total(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.IsOrphaned() || !rank.saved.must_return()) continue;
    // Without progress reports the number of steps is unknown.
    if (rank.died_without_step && rank.saved.has_progress() &&
        rank.losses_without_a_step >= kMaxLossesWithoutAStep && now - rank.first_loss > timeout) {
      return absl::StrCat(rank.saved.departure(), "; it was the last of ",
                          rank.losses_without_a_step, " in a row that died as host of rank ", i,
                          " before a step was done");
    }
    if (now - rank.free_since <= timeout) continue;
    if (how.empty()) how = rank.saved.departure();
    if (rank.saved.departure() == how) late.push_back(i);
  }
  if (late.empty()) return std::nullopt;
  return absl::StrCat(how, "; no worker has taken over its rank", late.size() == 1 ? " " : "s ",
                      absl::StrJoin(late, ", "),
                      absl::StrFormat(" within %.1f s", Seconds(timeout)));
}

StoredRanks LogicalWorkers::Save() const {
  StoredRanks stored;
  for (const Rank& rank : ranks_) *stored.add_ranks() = rank.saved;
  stored.set_decided(decided_);
  for (const Host& host : hosts_) *stored.add_hosts() = host.saved;
  stored.set_version(version_);
  stored.set_rebalance(rebalance_);
  return stored;
}

void LogicalWorkers::Restore(const StoredRanks& stored, MonotonicTime now) {
  if (static_cast<uint32_t>(stored.ranks_size()) != total()) std::abort();
  for (uint32_t i = 0; i < total(); ++i) {
    Rank& rank = ranks_[i];
    rank.saved = stored.ranks(static_cast<int>(i));
    rank.free_since = now;
    rank.steps_when_given = rank.Steps();
  }
  decided_ = stored.decided();
  version_ = stored.version();
  rebalance_ = rebalance_ || stored.rebalance();
  // Not older than any version that the worker knows.
  for (const StoredRankHost& host : stored.hosts()) hosts_.push_back({host, version_});
}

}  // namespace pawl
