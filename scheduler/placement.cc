#include "scheduler/placement.h"

namespace pawl {

std::vector<uint32_t> PlacePartitions(uint32_t servers, uint32_t partitions) {
  std::vector<uint32_t> primary(partitions);
  for (uint32_t partition = 0; partition < partitions; ++partition) primary[partition] = partition % servers;
  return primary;
}

}  // namespace pawl
