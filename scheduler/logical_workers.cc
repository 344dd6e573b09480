#include "scheduler/logical_workers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace pawl {

absl::Status LogicalWorkers::CheckWishes(absl::Span<const uint32_t> wishes) const {
  if (wishes.empty() && decided_) {
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
    if (!hosts_[rank].empty()) {
      return absl::AlreadyExistsError(absl::StrCat("rank ", rank, " is hosted by ", hosts_[rank]));
    }
  }
  return absl::OkStatus();
}

void LogicalWorkers::Join(const std::string& worker, absl::Span<const uint32_t> wishes) {
  joined_[worker] = !wishes.empty();
  if (wishes.empty()) without_wishes_.push_back(worker);
  for (const uint32_t rank : wishes) hosts_[rank] = worker;
  DecideIfAllAreThere();
}

void LogicalWorkers::Leave(const std::string& worker) {
  for (std::string& host : hosts_) {
    if (host == worker) host.clear();
  }
  joined_.erase(worker);
  without_wishes_.erase(std::remove(without_wishes_.begin(), without_wishes_.end(), worker), without_wishes_.end());
}

std::optional<std::vector<uint32_t>> LogicalWorkers::RanksOf(const std::string& worker) const {
  const auto it = joined_.find(worker);
  if (it == joined_.end() || (!it->second && !decided_)) return std::nullopt;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < total_; ++rank) {
    if (hosts_[rank] == worker) ranks.push_back(rank);
  }
  return ranks;
}

bool LogicalWorkers::AllHosted() const {
  return std::none_of(hosts_.begin(), hosts_.end(), [](const std::string& host) { return host.empty(); });
}

void LogicalWorkers::DecideIfAllAreThere() {
  if (decided_ || joined_.size() < workers_) return;
  // Without --workers, those with wishes leave the question open for one that has none.
  if (workers_ == 0 && without_wishes_.empty()) return;
  decided_ = true;
  std::vector<uint32_t> open;
  for (uint32_t rank = 0; rank < total_; ++rank) {
    if (hosts_[rank].empty()) open.push_back(rank);
  }
  for (size_t i = 0; i < open.size() && !without_wishes_.empty(); ++i) {
    // The worker whose run [w * open / workers, (w + 1) * open / workers) holds i.
    hosts_[open[i]] = without_wishes_[((i + 1) * without_wishes_.size() - 1) / open.size()];
  }
}

}  // namespace pawl
