#include "client_lib/daemon/staleness_counts.h"

#include <algorithm>
#include <limits>

namespace pawl {

void StalenessCounts::Add(uint64_t staleness) {
  const auto bound = std::lower_bound(kStalenessBounds.begin(), kStalenessBounds.end(), staleness);
  ++counts_[static_cast<size_t>(bound - kStalenessBounds.begin())];
  sum_ += staleness;
}

void StalenessCounts::AddTo(StalenessHistogram& histogram) const {
  for (int i = histogram.counts_size(); i < static_cast<int>(counts_.size()); ++i)
    histogram.add_counts(0);
  for (size_t i = 0; i < counts_.size(); ++i) {
    uint64_t& count = (*histogram.mutable_counts())[static_cast<int>(i)];
    count += counts_[i];
  }
  histogram.set_sum(histogram.sum() + sum_);
}

void AddHistogram(const StalenessHistogram& from, StalenessHistogram& to) {
  while (to.counts_size() < from.counts_size()) to.add_counts(0);
  for (int i = 0; i < from.counts_size(); ++i) to.set_counts(i, to.counts(i) + from.counts(i));
  to.set_sum(to.sum() + from.sum());
}

std::optional<StalenessSummary> SummarizeStaleness(const StalenessHistogram& now,
                                                   const StalenessHistogram& before) {
  const auto count_before = [&](int i) {
    return i < before.counts_size() ? before.counts(i) : uint64_t{0};
  };
  bool is_later = now.sum() >= before.sum() && now.counts_size() >= before.counts_size();
  for (int i = 0; i < now.counts_size(); ++i)
    is_later = is_later && now.counts(i) >= count_before(i);
  if (!is_later) return SummarizeStaleness(now);
  uint64_t total = 0;
  for (int i = 0; i < now.counts_size(); ++i) total += now.counts(i) - count_before(i);
  if (total == 0) return std::nullopt;
  StalenessSummary summary;
  summary.mean = static_cast<double>(now.sum() - before.sum()) / static_cast<double>(total);
  summary.p99 = std::numeric_limits<double>::infinity();
  uint64_t so_far = 0;
  for (int i = 0; i < now.counts_size() && i < static_cast<int>(kStalenessBounds.size()); ++i) {
    so_far += now.counts(i) - count_before(i);
    if (so_far * 100 < total * 99) continue;
    summary.p99 = static_cast<double>(kStalenessBounds[static_cast<size_t>(i)]);
    break;
  }
  return summary;
}

}  // namespace pawl
