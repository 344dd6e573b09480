#include "tests/harness/ledger/write_pauses.h"

#include <algorithm>
#include <cmath>

namespace pawl {

std::map<uint32_t, MonotonicDuration> LongestPauses(const AcknowledgementTimes& times,
                                                    const TimeSpan& span, MonotonicTime end) {
  std::map<uint32_t, MonotonicDuration> pauses;
  for (const auto& [worker, of_worker] : times) {
    if (of_worker.empty() || of_worker.front() >= span.until) continue;
    MonotonicDuration longest = {};
    // Starts at the last acknowledgement before the span, if there is one.
    auto begin = std::upper_bound(of_worker.begin(), of_worker.end(), span.from);
    if (begin != of_worker.begin()) --begin;
    for (; begin != of_worker.end() && *begin < span.until; ++begin) {
      const auto next = std::next(begin);
      longest =
          std::max(longest, (next == of_worker.end() ? std::max(end, *begin) : *next) - *begin);
    }
    pauses[worker] = longest;
  }
  return pauses;
}

PauseSummary SummarizePauses(std::vector<MonotonicDuration> pauses) {
  PauseSummary summary;
  if (pauses.empty()) return summary;
  std::sort(pauses.begin(), pauses.end());
  const auto percentile = [&pauses](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(pauses.size())));
    return Seconds(pauses[std::max<size_t>(rank, 1) - 1]);
  };
  summary.count = pauses.size();
  summary.p50_s = percentile(0.50);
  summary.p99_s = percentile(0.99);
  summary.max_s = Seconds(pauses.back());
  return summary;
}

}  // namespace pawl
