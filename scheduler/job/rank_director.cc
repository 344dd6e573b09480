#include "scheduler/job/rank_director.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// "rank 3 is", "ranks 0, 1 are"
std::string RanksText(const std::vector<LogicalWorkers::FreeRank>& ranks) {
  const auto number = [](std::string* out, const LogicalWorkers::FreeRank& rank) {
    absl::StrAppend(out, rank.rank);
  };
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", ", number),
                      ranks.size() == 1 ? " is" : " are");
}

LogicalWorkers::Worker WorkerOf(const RegisterRequest& request, const std::string& name) {
  LogicalWorkers::Worker worker;
  worker.name = name;
  worker.requested_ranks.assign(request.logical_workers().begin(), request.logical_workers().end());
  worker.follows = request.follows_assignment();
  return worker;
}

}  // namespace

RankDirector::RankDirector(const Options& options) : options_(options), ranks_(options.ranks) {}

absl::Status RankDirector::CheckJoin(const RegisterRequest& request,
                                     const std::string& former_name) const {
  return ranks_.CheckRequestedRanks(WorkerOf(request, former_name));
}

void RankDirector::OnWorkerJoined(const RegisterRequest& request, const Node& node) {
  LogicalWorkers::Worker worker = WorkerOf(request, node.name);
  worker.incarnation = node.incarnation;
  ranks_.Join(worker);
}

std::vector<RankDirector::FreeRank> RankDirector::OnWorkerGone(const Node& worker,
                                                               const std::string& how, bool dead,
                                                               MonotonicTime now) {
  NoteProgress(worker.progress);
  const std::vector<FreeRank> freed =
      ranks_.Leave({worker.name, absl::StrCat(NodeText(worker), " ", how),
                    /*must_return=*/dead || !options_.serve_only, /*may_return=*/dead},
                   now);
  if (!freed.empty()) spdlog::warn("{} {}; {} free", NodeText(worker), how, RanksText(freed));
  return freed;
}

std::vector<RankDirector::FreeRank> RankDirector::GiveUp(const Node& worker,
                                                         const std::vector<FreeRank>& ranks,
                                                         MonotonicTime now) {
  const std::string how = absl::StrCat(NodeText(worker), " gave it up");
  std::vector<FreeRank> given_up;
  for (const FreeRank& rank : ranks) {
    if (ranks_.GiveUp(worker.name, how, rank, now)) given_up.push_back(rank);
  }
  return given_up;
}

void RankDirector::NoteProgress(const WorkerProgress& progress) {
  for (const RankProgress& rank : progress.ranks()) ranks_.NoteProgress(rank);
}

void RankDirector::SetWantedWorkers(uint32_t workers) {
  ranks_.SetWantedWorkers(std::max(workers, options_.serve_only ? 0u : 1u));
}

std::vector<std::string> RankDirector::Place(MonotonicTime now,
                                             const std::function<uint64_t()>& next_incarnation) {
  std::vector<std::string> before;
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) before.push_back(ranks_.HostOf(rank));
  std::vector<std::string> changed = ranks_.Place(now, next_incarnation);
  if (changed.empty()) return changed;
  std::map<std::string, std::vector<FreeRank>> gained;
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    const std::string& host = ranks_.HostOf(rank);
    if (!host.empty() && host != before[rank]) gained[host].push_back({rank});
  }
  for (const auto& [worker, ranks] : gained)
    spdlog::info("{} given to {}", RanksText(ranks), worker);
  return changed;
}

std::optional<std::string> RankDirector::CheckReturn(MonotonicTime now) const {
  return ranks_.CheckReturn(now, options_.return_timeout);
}

bool RankDirector::AnyHosted() const {
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    if (!ranks_.HostOf(rank).empty()) return true;
  }
  return false;
}

std::vector<RankDirector::FreeRank> RankDirector::StillToRelease(
    const std::vector<FreeRank>& ranks) const {
  const std::vector<FreeRank> all = ranks_.RanksToRelease();
  std::vector<FreeRank> still;
  for (const FreeRank& rank : ranks) {
    const bool is_in = std::any_of(all.begin(), all.end(), [&](const FreeRank& other) {
      return other.rank == rank.rank && other.incarnation == rank.incarnation;
    });
    if (is_in) still.push_back(rank);
  }
  return still;
}

std::optional<GetAssignmentResponse> RankDirector::AssignmentOf(
    const std::string& worker, std::optional<uint64_t> restored_step) const {
  const std::optional<LogicalWorkers::Assignment> assignment = ranks_.AssignmentOf(worker);
  if (!assignment.has_value()) return std::nullopt;
  GetAssignmentResponse response;
  response.set_logical_workers_total(ranks_.total());
  response.set_version(assignment->version);
  if (restored_step.has_value()) response.set_counted_from_step(*restored_step);
  for (const FreeRank& rank : assignment->ranks) {
    LogicalWorkerAssignment& to = *response.add_logical_workers();
    to.set_rank(rank.rank);
    to.set_incarnation(rank.incarnation);
  }
  return response;
}

WorkerGroup::Hosts RankDirector::Hosts() const {
  WorkerGroup::Hosts hosts;
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    hosts.push_back({ranks_.HostOf(rank), ranks_.IncarnationOf(rank), ranks_.IsLeaving(rank),
                     ranks_.IsFinished(rank)});
  }
  return hosts;
}

void RankDirector::AddProgress(const Membership& membership, GetStatusResponse& status) const {
  std::optional<uint64_t> steps;
  for (uint32_t rank = 0; rank < ranks_.total(); ++rank) {
    // A rank that never had a host has done nothing.
    uint64_t done = 0;
    if (const RankProgress* const progress = ranks_.ProgressOf(rank); progress != nullptr) {
      done = progress->steps();
      status.set_samples(status.samples() + progress->samples());
    } else if (const Node* const host = membership.FindByName(ranks_.LastHostOf(rank));
               host != nullptr) {
      done = std::max(host->progress.steps_min(), host->earlier.steps_min());
    }
    steps = std::min(steps.value_or(done), done);
  }
  status.set_steps(steps.value_or(0));
}

}  // namespace pawl
