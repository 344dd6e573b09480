// How many replicas each server and each zone is to have.
#ifndef PAWL_SCHEDULER_PLACEMENT_REPLICA_QUOTAS_H_
#define PAWL_SCHEDULER_PLACEMENT_REPLICA_QUOTAS_H_

#include <cstdint>
#include <vector>

namespace pawl {

// Of one partition, in one zone.
struct ZoneBounds {
  uint32_t least = 0;
  uint32_t most = 0;
};

// Bounds within which `replicas` of a partition are spread over zones with so many servers as
// widely as possible: in different zones if there are enough, else as evenly as their sizes allow.
// REQUIRES: replicas <= the servers in all zones.
std::vector<ZoneBounds> SpreadOverZones(const std::vector<uint32_t>& servers_in_zone,
                                        uint32_t replicas);

struct QuotaServer {
  // An index in the bounds.
  uint32_t zone = 0;
  // It is to have no more, unless others cannot have the rest.
  double most = 0;
};

// What each server is to have of `total`: the same everywhere, but for servers that are to have
// less and for zones whose bounds say otherwise (`partitions` times those of one). The sum is
// `total`.
std::vector<double> ShareOut(double total, const std::vector<QuotaServer>& servers,
                             const std::vector<ZoneBounds>& bounds, double partitions);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_REPLICA_QUOTAS_H_
