#include "client_lib/rpc/routing_changes.h"

#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"

namespace pawl {

bool NamesListedServers(const RoutingTable& table, int partition) {
  const auto is_listed = [&table](uint32_t server) {
    return server < static_cast<uint32_t>(table.servers_size());
  };
  const uint32_t primary = table.primary(partition);
  if (primary != kNoPrimary && !is_listed(primary)) return false;
  // A table without replicas names primaries only.
  if (partition >= table.replicas_size()) return true;
  const PartitionReplicas& replicas = table.replicas(partition);
  return absl::c_all_of(replicas.backups(), is_listed) &&
         absl::c_all_of(replicas.learners(), is_listed) &&
         absl::c_all_of(replicas.retained(), is_listed) &&
         (!replicas.has_yielding() || is_listed(replicas.yielding()));
}

std::vector<uint32_t> ChangedPartitions(const RoutingTable& before, const RoutingTable& after) {
  std::vector<uint32_t> changed;
  // Compares serialized messages, so that a new field cannot be forgotten.
  std::string was;
  std::string is;
  for (int p = 0; p < after.primary_size(); ++p) {
    bool same = before.primary(p) == after.primary(p);
    if (same) {
      before.replicas(p).SerializeToString(&was);
      after.replicas(p).SerializeToString(&is);
      same = was == is;
    }
    if (!same) changed.push_back(static_cast<uint32_t>(p));
  }
  return changed;
}

RoutingTable RoutingChanges(const RoutingTable& table, uint64_t since_epoch,
                            const std::vector<uint32_t>& changed, bool servers_changed) {
  RoutingTable changes;
  changes.set_job_id(table.job_id());
  changes.set_epoch(table.epoch());
  changes.set_since_epoch(since_epoch);
  if (servers_changed) *changes.mutable_servers() = table.servers();
  for (const uint32_t partition : changed) {
    changes.add_changed(partition);
    changes.add_primary(table.primary(static_cast<int>(partition)));
    *changes.add_replicas() = table.replicas(static_cast<int>(partition));
  }
  return changes;
}

absl::StatusOr<RoutingTable> ApplyRoutingChanges(const RoutingTable& base,
                                                 const RoutingTable& changes) {
  if (changes.since_epoch() == 0 || changes.since_epoch() != base.epoch()) {
    return absl::InvalidArgumentError(absl::StrCat("routing changes since epoch ",
                                                   changes.since_epoch(),
                                                   " do not fit a table of epoch ", base.epoch()));
  }
  if (changes.job_id() != base.job_id() || changes.epoch() <= base.epoch()) {
    return absl::InvalidArgumentError(absl::StrCat("routing changes lead from epoch ", base.epoch(),
                                                   " of job ", base.job_id(), " to epoch ",
                                                   changes.epoch(), " of job ", changes.job_id()));
  }
  if (changes.primary_size() != changes.changed_size() ||
      changes.replicas_size() != changes.changed_size() ||
      base.replicas_size() != base.primary_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "routing changes name ", changes.changed_size(), " partitions, ", changes.primary_size(),
        " primaries and the replicas of ", changes.replicas_size()));
  }
  RoutingTable table = base;
  table.set_epoch(changes.epoch());
  if (changes.servers_size() > 0) *table.mutable_servers() = changes.servers();
  int64_t last = -1;
  for (int i = 0; i < changes.changed_size(); ++i) {
    const uint32_t partition = changes.changed(i);
    if (partition <= last || partition >= static_cast<uint32_t>(table.primary_size())) {
      return absl::InvalidArgumentError(absl::StrCat("routing changes name partition ", partition,
                                                     " after ", last, ", of ",
                                                     table.primary_size()));
    }
    last = partition;
    table.set_primary(static_cast<int>(partition), changes.primary(i));
    *table.mutable_replicas(static_cast<int>(partition)) = changes.replicas(i);
  }
  // Check all partitions, because the servers may have changed.
  for (int p = 0; p < table.primary_size(); ++p) {
    if (NamesListedServers(table, p)) continue;
    return absl::InvalidArgumentError(absl::StrCat("with the routing changes to epoch ",
                                                   table.epoch(), " partition ", p,
                                                   " is on an unknown server"));
  }
  return table;
}

}  // namespace pawl
