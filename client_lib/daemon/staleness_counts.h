// Histograms of staleness: servers count, the scheduler adds up and shows.
#ifndef PAWL_CLIENT_LIB_DAEMON_STALENESS_COUNTS_H_
#define PAWL_CLIENT_LIB_DAEMON_STALENESS_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "proto/server_control.pb.h"

namespace pawl {

// The upper bounds, inclusive, of the ranges that a histogram tells apart. All processes of a job
// must agree on them.
inline constexpr std::array<uint64_t, 18> kStalenessBounds = {0,  1,  2,  3,  4,  5,  6,  8,   10,
                                                              12, 16, 20, 24, 32, 48, 64, 128, 256};

// How often which staleness occurred. Not thread-safe.
class StalenessCounts {
 public:
  void Add(uint64_t staleness);
  // Adds these counts to `histogram`.
  void AddTo(StalenessHistogram& histogram) const;

 private:
  // The last one is that of values above all bounds.
  std::array<uint64_t, kStalenessBounds.size() + 1> counts_ = {};
  uint64_t sum_ = 0;
};

// Adds `from` to `to`.
void AddHistogram(const StalenessHistogram& from, StalenessHistogram& to);

struct StalenessSummary {
  double mean = 0;
  // The bound of the range in which the 99th percentile lies; infinity above the last bound.
  double p99 = 0;
};

// The increase from `before` to `now`; nullopt: none. Counts begin at 0 again when a partition's
// primary moves: if `now` has less of anything, all of it is new.
std::optional<StalenessSummary> SummarizeStaleness(const StalenessHistogram& now,
                                                   const StalenessHistogram& before = {});

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_STALENESS_COUNTS_H_
