// What each partition costs, from what its primaries report.
#ifndef PAWL_SCHEDULER_PLACEMENT_PARTITION_METER_H_
#define PAWL_SCHEDULER_PLACEMENT_PARTITION_METER_H_

#include <cstdint>
#include <vector>

#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"
#include "scheduler/placement/partition_load.h"

namespace pawl {

// A rate counts half after so long: a burst is no reason to move anything.
inline constexpr std::chrono::seconds kLoadHalfLife{20};

// Time is passed in. Not thread-safe.
class PartitionMeter {
 public:
  explicit PartitionMeter(uint32_t partitions) : partitions_(partitions) {}

  // `reporter` is the incarnation of the primary that says so. Counters of another incarnation, or
  // smaller ones, begin anew.
  void Note(uint64_t reporter, const PartitionFigures& figures, MonotonicTime now);

  // Smoothed. Empty until every partition has been heard of twice by one primary.
  PartitionLoads Loads() const;
  uint64_t bytes(uint32_t partition) const { return partitions_[partition].load.parameter_bytes; }

 private:
  struct Entry {
    uint64_t reporter = 0;
    uint64_t keys_pushed = 0;
    uint64_t keys_pulled = 0;
    MonotonicTime at;
    bool known = false;
    double pushed_rate = 0;
    double pulled_rate = 0;
    PartitionLoad load;
  };

  std::vector<Entry> partitions_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PARTITION_METER_H_
