#include "scheduler/routing/routing_history.h"

#include <algorithm>

#include "client_lib/rpc/routing_changes.h"

namespace pawl {
namespace {

bool SameServers(const RoutingTable& a, const RoutingTable& b) {
  return std::equal(a.servers().begin(), a.servers().end(), b.servers().begin(), b.servers().end(),
                    [](const ServerAddress& one, const ServerAddress& other) {
                      return one.SerializeAsString() == other.SerializeAsString();
                    });
}

}  // namespace

void RoutingHistory::Add(const RoutingTable& before, const RoutingTable& after) {
  // Changes cannot express a table without servers.
  const bool is_step = before.epoch() < after.epoch() &&
                       before.primary_size() == after.primary_size() && after.servers_size() > 0;
  if (!is_step || before.epoch() != last_) *this = RoutingHistory();
  if (!is_step) return;
  first_ = std::min<uint64_t>(first_, before.epoch());
  last_ = after.epoch();
  if (!SameServers(before, after)) servers_changed_ = last_;
  changed_.resize(static_cast<size_t>(after.primary_size()));
  for (const uint32_t partition : ChangedPartitions(before, after)) changed_[partition] = last_;
}

std::optional<RoutingTable> RoutingHistory::Since(uint64_t epoch, const RoutingTable& table) const {
  if (epoch < first_ || epoch >= table.epoch()) return std::nullopt;
  // Includes what changed only after `table`, which does no harm.
  std::vector<uint32_t> changed;
  for (uint32_t p = 0; p < changed_.size(); ++p) {
    if (changed_[p] > epoch) changed.push_back(p);
  }
  // Each changed partition also needs its number.
  if (changed.size() > changed_.size() / 2) return std::nullopt;
  return RoutingChanges(table, epoch, changed, servers_changed_ > epoch);
}

}  // namespace pawl
