#include "scheduler/logical_workers.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace pawl {

absl::Status LogicalWorkers::CheckWishes(const std::string& worker, absl::Span<const uint32_t> wishes) const {
  if (wishes.empty() && decided_ && Predecessor(worker).empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("all ", total_, " ranks have been given out; ",
                                                     "name free ones in logical_workers to host them"));
  }
  std::vector<bool> wished(total_);
  for (const uint32_t rank : wishes) {
    if (rank >= total_) {
      return absl::OutOfRangeError(
          absl::StrCat("logical_workers names rank ", rank, "; the job's last is ", total_ - 1));
    }
    if (wished[rank]) return absl::InvalidArgumentError(absl::StrCat("logical_workers names rank ", rank, " twice"));
    wished[rank] = true;
    if (!ranks_[rank].host.empty() && ranks_[rank].host != worker) {
      return absl::AlreadyExistsError(absl::StrCat("rank ", rank, " is hosted by ", ranks_[rank].host));
    }
  }
  return absl::OkStatus();
}

void LogicalWorkers::Join(const std::string& worker, absl::Span<const uint32_t> wishes) {
  joined_[worker] = !wishes.empty();
  for (const uint32_t rank : wishes) ranks_[rank].host = worker;
  if (!wishes.empty()) {
    DecideIfAllAreThere();
    return;
  }
  if (!decided_) {
    without_wishes_.push_back(worker);
    DecideIfAllAreThere();
    return;
  }
  const std::string predecessor = Predecessor(worker);
  for (Rank& rank : ranks_) {
    if (rank.HasLostItsHost() && rank.last_host == predecessor) rank.host = worker;
  }
}

std::string LogicalWorkers::Predecessor(const std::string& worker) const {
  std::string first;
  for (const Rank& rank : ranks_) {
    if (!worker.empty() && rank.host == worker) return worker;
    if (!rank.HasLostItsHost()) continue;
    if (rank.last_host == worker) return worker;
    if (first.empty()) first = rank.last_host;
  }
  return first;
}

std::vector<uint32_t> LogicalWorkers::Leave(const Departure& departure, MonotonicTime now) {
  std::vector<uint32_t> free;
  bool has_finished = false;
  for (uint32_t i = 0; i < total_; ++i) {
    Rank& rank = ranks_[i];
    if (rank.host != departure.worker) continue;
    has_finished = has_finished || rank.finished;
    if (rank.finished) continue;
    rank.last_host = std::move(rank.host);
    rank.host.clear();
    rank.last_incarnation = departure.incarnation;
    rank.how_gone = departure.how;
    rank.must_return = departure.must_return;
    rank.free_since = now;
    free.push_back(i);
  }
  if (!has_finished) joined_.erase(departure.worker);
  without_wishes_.erase(std::remove(without_wishes_.begin(), without_wishes_.end(), departure.worker),
                        without_wishes_.end());
  return free;
}

void LogicalWorkers::Finish(const std::string& worker) {
  for (Rank& rank : ranks_) {
    if (rank.host == worker) rank.finished = true;
  }
}

bool LogicalWorkers::AllFinished() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.finished; });
}

std::optional<std::vector<uint32_t>> LogicalWorkers::RanksOf(const std::string& worker) const {
  const auto it = joined_.find(worker);
  if (it == joined_.end() || (!it->second && !decided_)) return std::nullopt;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < total_; ++rank) {
    if (ranks_[rank].host == worker) ranks.push_back(rank);
  }
  return ranks;
}

bool LogicalWorkers::AllHosted() const {
  return std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.host.empty(); });
}

const std::string& LogicalWorkers::LastHostOf(uint32_t rank) const {
  return ranks_[rank].host.empty() ? ranks_[rank].last_host : ranks_[rank].host;
}

std::vector<LogicalWorkers::FreeRank> LogicalWorkers::FreeRanks() const {
  std::vector<FreeRank> free;
  for (uint32_t rank = 0; rank < total_; ++rank) {
    if (ranks_[rank].HasLostItsHost()) free.push_back({rank, ranks_[rank].last_incarnation});
  }
  return free;
}

std::optional<std::string> LogicalWorkers::CheckReturn(MonotonicTime now, MonotonicDuration timeout) const {
  std::vector<uint32_t> late;
  std::string how;
  for (uint32_t i = 0; i < total_; ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.HasLostItsHost() || !rank.must_return || now - rank.free_since <= timeout) continue;
    if (how.empty()) how = rank.how_gone;
    if (rank.how_gone == how) late.push_back(i);
  }
  if (late.empty()) return std::nullopt;
  return absl::StrCat(how, "; nobody has taken over its rank", late.size() == 1 ? " " : "s ", absl::StrJoin(late, ", "),
                      absl::StrFormat(" within %.1f s", Seconds(timeout)));
}

void LogicalWorkers::DecideIfAllAreThere() {
  if (decided_ || joined_.size() < workers_) return;
  // Without --workers, those with wishes leave the question open for one that has none.
  if (workers_ == 0 && without_wishes_.empty()) return;
  decided_ = true;
  std::vector<uint32_t> open;
  for (uint32_t rank = 0; rank < total_; ++rank) {
    if (ranks_[rank].host.empty()) open.push_back(rank);
  }
  for (size_t i = 0; i < open.size() && !without_wishes_.empty(); ++i) {
    // The worker whose run [w * open / workers, (w + 1) * open / workers) holds i.
    ranks_[open[i]].host = without_wishes_[((i + 1) * without_wishes_.size() - 1) / open.size()];
  }
}

StoredRanks LogicalWorkers::Save() const {
  StoredRanks stored;
  for (const Rank& rank : ranks_) {
    StoredRank& to = *stored.add_ranks();
    to.set_host(rank.host);
    to.set_last_host(rank.last_host);
    to.set_last_incarnation(rank.last_incarnation);
    to.set_how_gone(rank.how_gone);
    to.set_must_return(rank.must_return);
    to.set_finished(rank.finished);
  }
  stored.set_decided(decided_);
  // Those without wishes in their order, which matters while it is not decided.
  for (const std::string& worker : without_wishes_) {
    if (!joined_.contains(worker)) continue;
    stored.add_workers(worker);
    stored.add_wishes(false);
  }
  for (const auto& [worker, wishes] : joined_) {
    if (std::find(without_wishes_.begin(), without_wishes_.end(), worker) != without_wishes_.end()) continue;
    stored.add_workers(worker);
    stored.add_wishes(wishes);
  }
  return stored;
}

void LogicalWorkers::Restore(const StoredRanks& stored, MonotonicTime now) {
  if (static_cast<uint32_t>(stored.ranks_size()) != total_) std::abort();
  for (uint32_t i = 0; i < total_; ++i) {
    const StoredRank& from = stored.ranks(static_cast<int>(i));
    ranks_[i] = {from.host(),       from.last_host(), from.last_incarnation(), from.how_gone(),
                 from.must_return(), from.finished(), now};
  }
  decided_ = stored.decided();
  for (int i = 0; i < stored.workers_size(); ++i) {
    joined_[stored.workers(i)] = stored.wishes(i);
    if (!stored.wishes(i) && !decided_) without_wishes_.push_back(stored.workers(i));
  }
}

}  // namespace pawl
