#include "scheduler/placement/replica_quotas.h"

#include <algorithm>
#include <cstddef>

namespace pawl {
namespace {

// Halvings of the level that is looked for: far below one part in 2^50 nothing changes.
constexpr int kHalvings = 100;

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

// The level up to which all are filled, so that together they hold `total`. REQUIRES: total <= the
// sum of `most`.
double Level(const std::vector<double>& most, double total) {
  double low = 0;
  double high = most.empty() ? 0 : *std::max_element(most.begin(), most.end());
  for (int i = 0; i < kHalvings; ++i) {
    const double level = (low + high) / 2;
    double held = 0;
    for (const double limit : most) held += std::min(limit, level);
    (held < total ? low : high) = level;
  }
  return high;
}

}  // namespace

std::vector<ZoneBounds> SpreadOverZones(const std::vector<uint32_t>& servers_in_zone,
                                        uint32_t replicas) {
  uint32_t most = 0;
  uint64_t room = 0;
  while (room < replicas) {
    ++most;
    room = 0;
    for (const uint32_t servers : servers_in_zone) room += std::min(servers, most);
  }
  std::vector<ZoneBounds> bounds;
  for (const uint32_t servers : servers_in_zone) {
    bounds.push_back({std::min(servers, most == 0 ? 0 : most - 1), std::min(servers, most)});
  }
  return bounds;
}

std::vector<double> ShareOut(double total, const std::vector<QuotaServer>& servers,
                             const std::vector<ZoneBounds>& bounds, double partitions) {
  // What each zone can and must hold.
  std::vector<std::vector<double>> most(bounds.size());
  for (const QuotaServer& server : servers) most[server.zone].push_back(server.most);
  std::vector<double> least_of_zone(bounds.size());
  std::vector<double> most_of_zone(bounds.size());
  double room = 0;
  for (size_t zone = 0; zone < bounds.size(); ++zone) {
    least_of_zone[zone] = partitions * bounds[zone].least;
    // Where servers are to have less than their zone must hold, the zone decides.
    if (Sum(most[zone]) < least_of_zone[zone])
      std::fill(most[zone].begin(), most[zone].end(), partitions);
    most_of_zone[zone] = std::min(partitions * bounds[zone].most, Sum(most[zone]));
    room += most_of_zone[zone];
  }
  if (room < total) {
    for (size_t zone = 0; zone < bounds.size(); ++zone) {
      std::fill(most[zone].begin(), most[zone].end(), partitions);
      most_of_zone[zone] = partitions * bounds[zone].most;
    }
  }
  const auto held_in = [&](size_t zone, double level) {
    double held = 0;
    for (const double limit : most[zone]) held += std::min(limit, level);
    return std::clamp(held, least_of_zone[zone], most_of_zone[zone]);
  };
  double low = 0;
  double high = partitions;
  for (int i = 0; i < kHalvings; ++i) {
    const double level = (low + high) / 2;
    double held = 0;
    for (size_t zone = 0; zone < bounds.size(); ++zone) held += held_in(zone, level);
    (held < total ? low : high) = level;
  }
  std::vector<double> level_of_zone(bounds.size());
  for (size_t zone = 0; zone < bounds.size(); ++zone)
    level_of_zone[zone] = Level(most[zone], held_in(zone, high));
  std::vector<double> quotas;
  std::vector<size_t> next(bounds.size());
  for (const QuotaServer& server : servers) {
    quotas.push_back(std::min(most[server.zone][next[server.zone]++], level_of_zone[server.zone]));
  }
  return quotas;
}

}  // namespace pawl
