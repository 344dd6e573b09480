#include "scheduler/rebuild.h"

#include <algorithm>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/util/message_differencer.h"

namespace pawl {
namespace {

constexpr char kServerPrefix[] = "server-";

// Far beyond what a job gives out; the gaps fit behind it.
constexpr uint64_t kMaxGivenOut = uint64_t{1} << 62;
constexpr uint32_t kMaxServerNumber = 1 << 30;

absl::StatusOr<uint32_t> NumberOf(const std::string& server) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(absl::StripPrefix(server, kServerPrefix), &number) && number < kMaxServerNumber &&
      server == absl::StrCat(kServerPrefix, number)) {
    return number;
  }
  return absl::InvalidArgumentError(absl::StrCat("a routing table names a server '", server, "'"));
}

absl::Status CheckHeld(const std::string& node, const HeldJob& held) {
  uint64_t largest = std::max(held.routing().epoch(), held.last_incarnation());
  absl::btree_set<std::string> names;
  for (const ServerAddress& server : held.routing().servers()) {
    largest = std::max(largest, server.incarnation());
    if (!names.insert(server.node()).second) {
      return absl::InvalidArgumentError(absl::StrCat("the routing table of ", node, " names ", server.node(), " twice"));
    }
  }
  if (largest <= kMaxGivenOut) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(node, " knows an epoch or incarnation ", largest, ", which no job has"));
}

// Null if no server holds a job.
const RegisterRequest* WithNewestRouting(const std::vector<RegisterRequest>& heard) {
  const RegisterRequest* newest = nullptr;
  for (const RegisterRequest& server : heard) {
    if (!server.has_held_job()) continue;
    if (newest == nullptr || server.held_job().routing().epoch() > newest->held_job().routing().epoch()) newest = &server;
  }
  return newest;
}

absl::Status CheckIsThisJob(const RebuildOptions& options, const std::vector<RegisterRequest>& heard,
                            const RegisterRequest& newest) {
  for (const RegisterRequest& server : heard) {
    if (!server.has_held_job()) continue;
    PAWL_RETURN_IF_ERROR(CheckHeld(server.node(), server.held_job()));
    if (server.job_id() == newest.job_id()) continue;
    return absl::FailedPreconditionError(absl::StrCat(server.node(), " holds job ", server.job_id(), " and ", newest.node(),
                                                      " job ", newest.job_id(), "; end the servers of one of them"));
  }
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  if (!differencer.Compare(newest.held_job().job(), options.job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--job is not the job that ", newest.node(), " holds; it differs in: ", differences));
  }
  if (static_cast<uint32_t>(newest.held_job().routing().primary_size()) != options.job.partitions()) {
    return absl::FailedPreconditionError(absl::StrCat(newest.node(), " has a routing table of ",
                                                      newest.held_job().routing().primary_size(),
                                                      " partitions, the job has ", options.job.partitions()));
  }
  return absl::OkStatus();
}

// Names of the servers that have every acknowledged push of the partition.
std::vector<std::string> InSync(const RoutingTable& routing, int partition) {
  std::vector<uint32_t> servers;
  if (routing.primary(partition) != kNoPrimary) servers.push_back(routing.primary(partition));
  if (partition < routing.replicas_size()) {
    const auto& backups = routing.replicas(partition).backups();
    servers.insert(servers.end(), backups.begin(), backups.end());
  }
  std::vector<std::string> names;
  for (const uint32_t server : servers) {
    if (server < static_cast<uint32_t>(routing.servers_size()))
      names.push_back(routing.servers(static_cast<int>(server)).node());
  }
  return names;
}

std::vector<std::string> NotHeard(const RoutingTable& routing, const std::vector<RegisterRequest>& heard,
                                  const absl::btree_set<std::string>& without) {
  std::vector<std::string> missing;
  for (const ServerAddress& server : routing.servers()) {
    const auto is = [&](const RegisterRequest& request) { return request.node() == server.node(); };
    if (without.contains(server.node()) || std::any_of(heard.begin(), heard.end(), is)) continue;
    missing.push_back(server.node());
  }
  return missing;
}

StoredMembership Membership(const RoutingTable& routing, const std::vector<RegisterRequest>& heard,
                            const absl::btree_map<std::string, uint32_t>& numbers) {
  StoredMembership membership;
  uint64_t last_incarnation = 0;
  uint32_t next_server = 0;
  for (const ServerAddress& server : routing.servers()) {
    StoredNode& node = *membership.add_nodes();
    node.set_name(server.node());
    node.set_role(SERVER_ROLE);
    node.set_number(numbers.at(server.node()));
    node.set_incarnation(server.incarnation());
    node.set_address(server.address());
    node.set_gone(true);
    // Nonces that no process has: a server returns by its name.
    node.set_process_nonce(server.incarnation());
    membership.add_gone(server.node());
    last_incarnation = std::max(last_incarnation, server.incarnation());
    next_server = std::max(next_server, numbers.at(server.node()) + 1);
  }
  for (const RegisterRequest& server : heard) {
    last_incarnation = std::max(last_incarnation, server.held_job().last_incarnation());
  }
  membership.set_last_incarnation(last_incarnation + kRebuildGap);
  membership.set_next_server(next_server + kRebuildNumberGap);
  membership.set_next_worker(kRebuildNumberGap);
  return membership;
}

// A table that some servers lack was being created: they are asked for it again.
absl::StatusOr<StoredTables> Tables(const std::vector<RegisterRequest>& heard) {
  absl::btree_map<uint32_t, StoredTable> tables;
  absl::btree_map<uint32_t, size_t> counts;
  size_t servers_with_replicas = 0;
  for (const RegisterRequest& server : heard) {
    // A server without replicas may not have been asked for any table.
    servers_with_replicas += server.has_held_job() && server.recovered_size() > 0;
    for (const TableSpec& spec : server.held_job().tables()) {
      const auto [entry, is_new] = tables.try_emplace(spec.id());
      if (is_new) *entry->second.mutable_spec() = spec;
      if (entry->second.spec().SerializeAsString() != spec.SerializeAsString()) {
        return absl::InvalidArgumentError(absl::StrCat(server.node(), " has another table ", spec.id(), " than others"));
      }
      if (server.recovered_size() == 0) continue;
      ++counts[spec.id()];
    }
  }
  StoredTables stored;
  for (auto& [id, table] : tables) {
    table.set_ready(counts[id] == servers_with_replicas);
    *stored.add_tables() = table;
    stored.set_last_id(id);
  }
  return stored;
}

}  // namespace

bool AllServersAreHeard(const std::vector<RegisterRequest>& heard, const absl::btree_set<std::string>& without) {
  const RegisterRequest* const newest = WithNewestRouting(heard);
  return newest != nullptr && NotHeard(newest->held_job().routing(), heard, without).empty();
}

absl::StatusOr<SchedulerState> RebuildState(const RebuildOptions& options, const std::vector<RegisterRequest>& heard) {
  const RegisterRequest* const newest = WithNewestRouting(heard);
  if (newest == nullptr) {
    return absl::FailedPreconditionError(
        "no server that holds a job has registered; do the servers run, and look for a scheduler at this address?");
  }
  PAWL_RETURN_IF_ERROR(CheckIsThisJob(options, heard, *newest));
  const RoutingTable& routing = newest->held_job().routing();
  if (const auto silent = NotHeard(routing, heard, options.without); !silent.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(absl::StrJoin(silent, ", "), " did not register, and may have pushes that no other server has; start ",
                     silent.size() == 1 ? "it" : "them",
                     " again, or, if dead for good, add --rebuild_without=", absl::StrJoin(silent, ",")));
  }
  absl::btree_map<std::string, uint32_t> numbers;
  for (const ServerAddress& server : routing.servers()) {
    PAWL_ASSIGN_OR_RETURN(numbers[server.node()], NumberOf(server.node()));
  }
  absl::btree_map<std::string, absl::btree_set<uint32_t>> held;  // partitions by server
  for (const RegisterRequest& server : heard) {
    if (server.job_id() != newest->job_id()) continue;
    for (const RecoveredReplica& replica : server.recovered()) held[server.node()].insert(replica.partition());
  }

  SchedulerState state;
  state.set_job_id(newest->job_id());
  *state.mutable_job() = options.job;
  state.set_servers(options.servers);
  state.set_workers(options.workers);
  state.set_state(STARTING);
  *state.mutable_membership() = Membership(routing, heard, numbers);
  StoredPlacement& placement = *state.mutable_placement();
  placement.set_epoch(routing.epoch() + kRebuildGap);
  std::vector<int> missing;
  absl::btree_set<std::string> needed;
  for (int partition = 0; partition < routing.primary_size(); ++partition) {
    const std::vector<std::string> in_sync = InSync(routing, partition);
    const bool is_held = std::any_of(in_sync.begin(), in_sync.end(), [&](const std::string& server) {
      const auto found = held.find(server);
      return found != held.end() && found->second.contains(static_cast<uint32_t>(partition));
    });
    if (!is_held) {
      missing.push_back(partition);
      needed.insert(in_sync.begin(), in_sync.end());
    }
    StoredReplicaSet& set = *placement.add_partitions();
    set.set_primary(kNoPrimary);
    set.set_yielding(kNoPrimary);
    set.set_leaving(kNoPrimary);
    set.set_primary_since(placement.epoch());
    if (partition < routing.replicas_size()) set.set_began(routing.replicas(partition).began());
    for (const std::string& server : in_sync) {
      set.add_last_in_sync(numbers.at(server));
      set.add_keepers(numbers.at(server));
    }
    set.set_keepers_since(placement.epoch());
  }
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no server that has registered has an in-sync replica of partitions ", absl::StrJoin(missing, ", "),
                     needed.empty() ? "" : absl::StrCat("; start ", absl::StrJoin(needed, " or "), " again"),
                     ", or begin with the last checkpoint (--restore)"));
  }
  for (const auto& [name, number] : numbers) {
    (*placement.mutable_how_gone())[number] = absl::StrCat(name, " was known to a scheduler whose state is lost");
  }
  // Ranks without hosts, which are decided anew.
  for (uint32_t rank = 0; rank < options.job.logical_workers(); ++rank) state.mutable_ranks()->add_ranks();
  PAWL_ASSIGN_OR_RETURN(*state.mutable_tables(), Tables(heard));
  state.set_rebuilt(true);
  for (const RegisterRequest& server : heard) {
    state.set_longest_lease_ms(std::max<uint64_t>(state.longest_lease_ms(), server.held_job().longest_lease_ms()));
  }
  return state;
}

}  // namespace pawl
