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
  if (!is_step || (!changes_.empty() && changes_.back().to != before.epoch())) {
    changes_.clear();
    partitions_kept_ = 0;
  }
  if (!is_step) return;
  changes_.push_back({before.epoch(), after.epoch(), !SameServers(before, after),
                      ChangedPartitions(before, after)});
  partitions_kept_ += changes_.back().partitions.size();
  while (changes_.size() > kMaxRoutingChanges || partitions_kept_ > kMaxChangedPartitionsKept) {
    partitions_kept_ -= changes_.front().partitions.size();
    changes_.pop_front();
  }
}

std::optional<RoutingTable> RoutingHistory::Since(uint64_t epoch, const RoutingTable& table) const {
  const auto first =
      std::lower_bound(changes_.begin(), changes_.end(), epoch,
                       [](const Change& change, uint64_t from) { return change.from < from; });
  if (first == changes_.end() || first->from != epoch) return std::nullopt;
  std::vector<bool> is_changed(table.primary_size());
  bool servers = false;
  bool reached = false;
  for (auto change = first; change != changes_.end() && !reached; ++change) {
    for (const uint32_t partition : change->partitions) is_changed[partition] = true;
    servers = servers || change->servers;
    reached = change->to == table.epoch();
  }
  if (!reached) return std::nullopt;
  std::vector<uint32_t> changed;
  for (uint32_t p = 0; p < is_changed.size(); ++p) {
    if (is_changed[p]) changed.push_back(p);
  }
  // Each changed partition also needs its number.
  if (changed.size() > is_changed.size() / 2) return std::nullopt;
  return RoutingChanges(table, epoch, changed, servers);
}

}  // namespace pawl
