// Measures the load of each partition from the reports of its primaries.
#ifndef PAWL_SCHEDULER_PLACEMENT_PARTITION_METER_H_
#define PAWL_SCHEDULER_PLACEMENT_PARTITION_METER_H_

#include <cstdint>
#include <vector>

#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"
#include "scheduler/placement/placement_target.h"

namespace pawl {

// The half-life of a measured rate. A short burst moves nothing.
inline constexpr std::chrono::seconds kLoadHalfLife{20};

// Time is passed in. Not thread-safe.
class PartitionMeter {
 public:
  explicit PartitionMeter(uint32_t partitions) : partitions_(partitions) {}

  // `reporter` is the incarnation of the reporting primary. Counters of another incarnation, or
  // smaller counters, start a new measurement.
  void Note(uint64_t reporter, const PartitionFigures& figures, MonotonicTime now);

  // The smoothed loads. Empty until one primary of every partition has reported twice.
  PartitionLoads Loads() const;
  uint64_t bytes(uint32_t partition) const { return partitions_[partition].load.parameter_bytes; }

 private:
  struct Entry {
    uint64_t reporter = 0;
    uint64_t keys_pushed = 0;
    uint64_t keys_pulled = 0;
    MonotonicTime at;
    // Exponentially weighted sums of rates, and of the weights: a young measurement is the mean of
    // all of its time, not mostly its first interval.
    double pushed = 0;
    double pulled = 0;
    double weight = 0;
    PartitionLoad load;
  };

  std::vector<Entry> partitions_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PARTITION_METER_H_
