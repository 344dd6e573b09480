// What partitions cost the servers that have them.
#ifndef PAWL_SCHEDULER_PLACEMENT_PARTITION_LOAD_H_
#define PAWL_SCHEDULER_PLACEMENT_PARTITION_LOAD_H_

#include <cstdint>
#include <vector>

namespace pawl {

struct PartitionLoad {
  uint64_t parameter_bytes = 0;
  // A second. Each replica takes all pushes; only the primary answers pulls.
  uint64_t keys_pushed = 0;
  uint64_t keys_pulled = 0;
};
// By partition; empty: nothing is known, and all are alike.
using PartitionLoads = std::vector<PartitionLoad>;

// Servers that differ by so much of what they have on average are taken for equal.
inline constexpr double kTolerance = 0.1;
// Partitions of a job with less than so much, all together, are alike: it is not worth a move.
inline constexpr uint64_t kLeastBytesToBalance = uint64_t{16} << 20;
inline constexpr uint64_t kLeastKeysToBalance = 10000;

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PARTITION_LOAD_H_
