// Which server holds which partition: the decision alone.
#ifndef PAWL_SCHEDULER_PLACEMENT_H_
#define PAWL_SCHEDULER_PLACEMENT_H_

#include <cstdint>
#include <vector>

namespace pawl {

// primary[p] is the index of partition p's server: p mod servers. No server has more than one partition more
// than another, and since keys are spread over partitions by a hash, neighbours carry no more load
// together than others. REQUIRES: servers > 0.
std::vector<uint32_t> PlacePartitions(uint32_t servers, uint32_t partitions);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_H_
