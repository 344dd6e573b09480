#include "scheduler/startup/rebuild.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/random.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/transport.h"
#include "google/protobuf/util/message_differencer.h"
#include "scheduler/membership/membership.h"
#include "scheduler/membership/registration_check.h"

namespace pawl {
namespace {

constexpr char kServerPrefix[] = "server-";

// Far beyond any number that a job assigns. The gaps fit behind it.
constexpr uint64_t kMaxGivenOut = uint64_t{1} << 62;
constexpr uint32_t kMaxServerNumber = 1 << 30;

absl::StatusOr<uint32_t> NumberOf(const std::string& server) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(absl::StripPrefix(server, kServerPrefix), &number) &&
      number < kMaxServerNumber && server == absl::StrCat(kServerPrefix, number)) {
    return number;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", server, "' is not a server's name"));
}

absl::Status CheckHeld(const std::string& node, const HeldJob& held) {
  uint64_t largest = std::max(held.routing().epoch(), held.last_incarnation());
  absl::btree_set<std::string> names;
  for (const ServerAddress& server : held.routing().servers()) {
    largest = std::max(largest, server.incarnation());
    if (!names.insert(server.node()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the routing table of ", node, " names ", server.node(), " twice"));
    }
  }
  if (largest <= kMaxGivenOut) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(node, " knows an epoch or incarnation ", largest, ", which no job has"));
}

// A number larger than any epoch or incarnation that the job has assigned. `known` is the largest
// known one.
uint64_t UnusedNumber(uint64_t known, uint64_t unix_ms) {
  const uint64_t by_clock = unix_ms * kEpochsInAMillisecond;
  return by_clock > known ? by_clock : known + kRebuildGap;
}

// Null if no server holds a job.
const RegisterRequest* NewestRoutingHolder(const std::vector<RegisterRequest>& registrations) {
  const RegisterRequest* newest = nullptr;
  for (const RegisterRequest& server : registrations) {
    if (!server.has_held_job()) continue;
    if (newest == nullptr ||
        server.held_job().routing().epoch() > newest->held_job().routing().epoch())
      newest = &server;
  }
  return newest;
}

absl::Status CheckIsThisJob(const RebuildOptions& options,
                            const std::vector<RegisterRequest>& registrations,
                            const RegisterRequest& newest) {
  for (const RegisterRequest& server : registrations) {
    if (!server.has_held_job()) continue;
    PAWL_RETURN_IF_ERROR(CheckHeld(server.node(), server.held_job()));
    if (server.job_id() == newest.job_id()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(server.node(), " holds job ", server.job_id(), " and ", newest.node(), " job ",
                     newest.job_id(), "; end the servers of one of them"));
  }
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  if (!differencer.Compare(newest.held_job().job(), options.job)) {
    return absl::FailedPreconditionError(absl::StrCat("--job is not the job that ", newest.node(),
                                                      " holds; it differs in: ", differences));
  }
  if (static_cast<uint32_t>(newest.held_job().routing().primary_size()) !=
      options.job.partitions()) {
    return absl::FailedPreconditionError(absl::StrCat(
        newest.node(), " has a routing table of ", newest.held_job().routing().primary_size(),
        " partitions, the job has ", options.job.partitions()));
  }
  return absl::OkStatus();
}

// The names of the servers that have every push of the partition acknowledged under that routing.
std::vector<std::string> InSync(const RoutingTable& routing, int partition) {
  std::vector<uint32_t> servers;
  if (routing.primary(partition) != kNoPrimary) servers.push_back(routing.primary(partition));
  if (partition < routing.replicas_size()) {
    const PartitionReplicas& replicas = routing.replicas(partition);
    if (replicas.has_yielding()) servers.push_back(replicas.yielding());
    servers.insert(servers.end(), replicas.backups().begin(), replicas.backups().end());
  }
  std::vector<std::string> names;
  for (const uint32_t server : servers) {
    if (server < static_cast<uint32_t>(routing.servers_size()))
      names.push_back(routing.servers(static_cast<int>(server)).node());
  }
  if (servers.empty() && partition < routing.replicas_size()) {
    const auto& away = routing.replicas(partition).last_in_sync();
    names.assign(away.begin(), away.end());
  }
  return names;
}

uint64_t PrimarySince(const RoutingTable& routing, int partition) {
  return partition < routing.replicas_size() ? routing.replicas(partition).primary_since() : 0;
}

// The names of the servers that retain an earlier replica of the partition.
std::vector<std::string> Retained(const RoutingTable& routing, int partition) {
  std::vector<std::string> names;
  if (partition >= routing.replicas_size()) return names;
  for (const uint32_t server : routing.replicas(partition).retained()) {
    if (server < static_cast<uint32_t>(routing.servers_size()))
      names.push_back(routing.servers(static_cast<int>(server)).node());
  }
  return names;
}

// The name of the primary of the partition's term, which may be handing over; empty if it is gone.
std::string PrimaryOf(const RoutingTable& routing, int partition) {
  uint32_t primary = routing.primary(partition);
  if (partition < routing.replicas_size() && routing.replicas(partition).has_yielding())
    primary = routing.replicas(partition).yielding();
  if (primary >= static_cast<uint32_t>(routing.servers_size())) return "";
  return routing.servers(static_cast<int>(primary)).node();
}

// A server's replica of one partition.
struct HeldReplica {
  std::string server;
  // The term and index of its last change. If either of two replicas has all acknowledged pushes,
  // the one with the larger position does.
  std::pair<uint64_t, uint64_t> position;
  // The server was restarted and no longer knows the routing that it last adopted.
  bool restarted = false;
};

// By partition.
using HeldReplicas = absl::btree_map<uint32_t, std::vector<HeldReplica>>;

HeldReplicas ReplicasOf(const std::vector<RegisterRequest>& registrations) {
  HeldReplicas held;
  for (const RegisterRequest& server : registrations) {
    for (const RecoveredReplica& replica : server.recovered()) {
      held[replica.partition()].push_back({server.node(),
                                           {replica.term(), replica.log_index()},
                                           /*restarted=*/!server.has_held_job()});
    }
  }
  return held;
}

// The servers that may become primary: those in sync by the newest known routing that are not
// behind a restarted server. A restarted server may have acted by a later routing, with another
// in-sync set and perhaps another primary. Its changes of terms before `primary_since`, the term of
// the newest known routing, do not count: the primary of that term has them too, or they were never
// acknowledged. Nor do its changes of that term while the `primary` of the term lives and has all
// of them. Otherwise they count: the servers that are in sync by the newest known routing may have
// been dropped from a later one, under which the restarted server acknowledged its last changes.
//
// If all servers in sync by the newest known routing have registered without a replica
// (`is_handed_over`), they have deleted it by a later one, under which others had all its pushes.
// The restarted server with the last position is then the candidate, but not one of the `retained`
// replicas, which lack pushes, unless it has got changes of a later term.
std::vector<std::string> Candidates(const std::vector<std::string>& in_sync,
                                    const std::string& primary, uint64_t primary_since,
                                    const std::vector<HeldReplica>& held,
                                    const std::vector<std::string>& retained, bool is_handed_over) {
  const bool primary_lives =
      std::any_of(held.begin(), held.end(), [&primary](const HeldReplica& replica) {
        return replica.server == primary && !replica.restarted;
      });
  const uint64_t least_term = primary_lives ? primary_since + 1 : primary_since;
  const HeldReplica* ahead = nullptr;
  for (const HeldReplica& replica : held) {
    if (!replica.restarted || replica.position.first < least_term) continue;
    if (is_handed_over && replica.position.first == primary_since &&
        absl::c_linear_search(retained, replica.server)) {
      continue;
    }
    if (ahead == nullptr || replica.position > ahead->position) ahead = &replica;
  }
  std::vector<std::string> candidates;
  bool any_in_sync = false;
  for (const HeldReplica& replica : held) {
    if (std::find(in_sync.begin(), in_sync.end(), replica.server) == in_sync.end()) continue;
    any_in_sync = true;
    if (ahead == nullptr || replica.position >= ahead->position)
      candidates.push_back(replica.server);
  }
  if (candidates.empty() && ahead != nullptr && (any_in_sync || is_handed_over))
    candidates.push_back(ahead->server);
  return candidates;
}

bool HasRegistered(const std::vector<RegisterRequest>& registrations, const std::string& server) {
  return absl::c_any_of(registrations,
                        [&](const RegisterRequest& request) { return request.node() == server; });
}

// Whether all servers in sync by that routing have registered, and none has the replica.
bool IsHandedOver(const std::vector<std::string>& in_sync,
                  const std::vector<RegisterRequest>& registrations,
                  const std::vector<HeldReplica>& held) {
  return !in_sync.empty() && absl::c_all_of(in_sync, [&](const std::string& server) {
    return HasRegistered(registrations, server) &&
           absl::c_none_of(held, [&](const HeldReplica& one) { return one.server == server; });
  });
}

// The servers that may have data under that routing or a later one: the present ones, and those
// that partitions wait for.
absl::btree_set<std::string> NamedServers(const RoutingTable& routing) {
  absl::btree_set<std::string> names;
  for (const ServerAddress& server : routing.servers()) names.insert(server.node());
  for (const PartitionReplicas& replicas : routing.replicas()) {
    names.insert(replicas.last_in_sync().begin(), replicas.last_in_sync().end());
  }
  return names;
}

std::vector<std::string> MissingServers(const RoutingTable& routing,
                                        const std::vector<RegisterRequest>& registrations,
                                        const absl::btree_set<std::string>& without) {
  std::vector<std::string> missing;
  for (const std::string& server : NamedServers(routing)) {
    if (!without.contains(server) && !HasRegistered(registrations, server))
      missing.push_back(server);
  }
  return missing;
}

// The membership with each server that the routing names or that has registered. REQUIRES:
// `registrations` are of this job.
StoredMembership RebuiltMembership(const RoutingTable& routing,
                                   const std::vector<RegisterRequest>& registrations,
                                   const absl::btree_map<std::string, uint32_t>& numbers,
                                   uint64_t unix_ms) {
  StoredMembership membership;
  uint64_t last_incarnation = 0;
  uint32_t next_server = 0;
  for (const auto& [name, number] : numbers) next_server = std::max(next_server, number + 1);
  for (const ServerAddress& server : routing.servers())
    last_incarnation = std::max(last_incarnation, server.incarnation());
  for (const RegisterRequest& server : registrations) {
    last_incarnation = std::max(last_incarnation, server.held_job().last_incarnation());
  }
  const auto add = [&](const std::string& name, uint64_t incarnation) -> StoredNode& {
    StoredNode& node = *membership.add_nodes();
    node.set_name(name);
    node.set_role(SERVER_ROLE);
    node.set_number(numbers.at(name));
    node.set_incarnation(incarnation);
    node.set_gone(true);
    // No process has this nonce. A server that has not registered returns by its name.
    node.set_process_nonce(incarnation);
    membership.add_gone(name);
    return node;
  };
  absl::btree_map<std::string, StoredNode*> nodes;
  for (const ServerAddress& server : routing.servers()) {
    StoredNode& node = add(server.node(), server.incarnation());
    node.set_address(server.address());
    nodes[server.node()] = &node;
  }
  // Servers that partitions wait for.
  for (const auto& [name, number] : numbers) {
    if (!nodes.contains(name)) nodes[name] = &add(name, ++last_incarnation);
  }
  for (const RegisterRequest& server : registrations) {
    StoredNode*& node = nodes[server.node()];
    // Its data directory contains its name, which no other server may get.
    if (node == nullptr) node = &add(server.node(), ++last_incarnation);
    // The server repeats that registration, and it must count as the next one.
    // Earlier ones are late.
    node->set_process_nonce(server.process_nonce());
    node->set_start_count(server.start_count());
    node->set_registration(std::max<uint64_t>(server.registration(), 1) - 1);
    node->set_address(server.address());
  }
  membership.set_last_incarnation(UnusedNumber(last_incarnation, unix_ms));
  membership.set_next_server(next_server + kRebuildNumberGap);
  membership.set_next_worker(kRebuildNumberGap);
  return membership;
}

// All tables, not ready, so that the servers are asked to create them again, which does nothing
// where they exist. A server may report a table whose creation was unfinished: some of its
// partitions, or backups that are to become primary, may lack it.
absl::StatusOr<StoredTables> Tables(const std::vector<RegisterRequest>& registrations) {
  absl::btree_map<uint32_t, StoredTable> tables;
  for (const RegisterRequest& server : registrations) {
    for (const TableSpec& spec : server.held_job().tables()) {
      const auto [entry, is_new] = tables.try_emplace(spec.id());
      if (is_new) *entry->second.mutable_spec() = spec;
      if (entry->second.spec().SerializeAsString() != spec.SerializeAsString()) {
        return absl::InvalidArgumentError(absl::StrCat(server.node(), " has a different table ",
                                                       spec.id(), " than other servers"));
      }
    }
  }
  StoredTables stored;
  for (auto& [id, table] : tables) {
    *stored.add_tables() = table;
    stored.set_last_id(id);
  }
  return stored;
}

}  // namespace

bool HasAllServers(const std::vector<RegisterRequest>& registrations,
                   const absl::btree_set<std::string>& without) {
  const RegisterRequest* const newest = NewestRoutingHolder(registrations);
  if (newest == nullptr) return false;
  const RoutingTable& routing = newest->held_job().routing();
  if (!MissingServers(routing, registrations, without).empty()) return false;
  HeldReplicas held = ReplicasOf(registrations);
  for (int partition = 0; partition < routing.primary_size(); ++partition) {
    const std::vector<HeldReplica>& replicas = held[static_cast<uint32_t>(partition)];
    const bool has_later_term = absl::c_any_of(replicas, [&](const HeldReplica& replica) {
      return replica.position.first > PrimarySince(routing, partition);
    });
    if (has_later_term || IsHandedOver(InSync(routing, partition), registrations, replicas))
      return false;
  }
  return true;
}

absl::StatusOr<SchedulerState> RebuildState(const RebuildOptions& options,
                                            const std::vector<RegisterRequest>& all_heard) {
  const RegisterRequest* const newest = NewestRoutingHolder(all_heard);
  if (newest == nullptr) {
    return absl::FailedPreconditionError(
        "no server that holds a job has registered; do the servers run, and look for a scheduler "
        "at this address?");
  }
  PAWL_RETURN_IF_ERROR(CheckIsThisJob(options, all_heard, *newest));
  const RoutingTable& routing = newest->held_job().routing();
  std::vector<RegisterRequest> registrations;
  for (const RegisterRequest& server : all_heard) {
    if (server.job_id() == newest->job_id()) registrations.push_back(server);
  }
  if (const auto silent = MissingServers(routing, registrations, options.without);
      !silent.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        absl::StrJoin(silent, ", "),
        " did not register and may have pushes that no other server has; start ",
        silent.size() == 1 ? "it" : "them",
        " again, or, if they will not return, add --rebuild_without=", absl::StrJoin(silent, ",")));
  }
  absl::btree_map<std::string, uint32_t> numbers;
  for (const std::string& server : NamedServers(routing)) {
    PAWL_ASSIGN_OR_RETURN(numbers[server], NumberOf(server));
  }
  for (const RegisterRequest& server : registrations) {
    PAWL_ASSIGN_OR_RETURN(numbers[server.node()], NumberOf(server.node()));
  }
  HeldReplicas held = ReplicasOf(registrations);

  SchedulerState state;
  state.set_job_id(newest->job_id());
  *state.mutable_job() = options.job;
  state.set_servers(options.servers);
  state.set_workers(options.workers);
  state.set_state(STARTING);
  *state.mutable_membership() = RebuiltMembership(routing, registrations, numbers, options.unix_ms);
  StoredPlacement& placement = *state.mutable_placement();
  placement.set_epoch(UnusedNumber(routing.epoch(), options.unix_ms));
  std::vector<int> missing;
  absl::btree_set<std::string> needed;
  for (int partition = 0; partition < routing.primary_size(); ++partition) {
    const std::vector<std::string> in_sync = InSync(routing, partition);
    const std::vector<HeldReplica>& replicas = held[static_cast<uint32_t>(partition)];
    const std::vector<std::string> candidates = Candidates(
        in_sync, PrimaryOf(routing, partition), PrimarySince(routing, partition), replicas,
        Retained(routing, partition), IsHandedOver(in_sync, registrations, replicas));
    if (candidates.empty()) {
      missing.push_back(partition);
      needed.insert(in_sync.begin(), in_sync.end());
    }
    StoredReplicaSet& set = *placement.add_partitions();
    set.set_primary(kNoPrimary);
    set.set_yielding(kNoPrimary);
    set.set_leaving(kNoPrimary);
    set.set_primary_since(placement.epoch());
    if (partition < routing.replicas_size())
      set.set_created_epoch(routing.replicas(partition).created_epoch());
    for (const std::string& server : candidates) set.add_last_in_sync(numbers.at(server));
    // The other servers in sync retain their files, as in any failover.
    for (const auto& [name, number] : numbers) {
      const bool retains =
          std::find(in_sync.begin(), in_sync.end(), name) != in_sync.end() ||
          std::find(candidates.begin(), candidates.end(), name) != candidates.end();
      if (retains) set.add_retained(number);
    }
    set.set_retained_since(placement.epoch());
  }
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no server that has registered has an in-sync replica of partitions ",
        absl::StrJoin(missing, ", "),
        needed.empty() ? "" : absl::StrCat("; start ", absl::StrJoin(needed, " or "), " again"),
        ", or start from the last checkpoint (--restore)"));
  }
  for (const auto& [name, number] : numbers) {
    (*placement.mutable_departures())[number] =
        absl::StrCat(name, " was known to a scheduler whose state is lost");
  }
  // Ranks without hosts, to be assigned again.
  for (uint32_t rank = 0; rank < options.job.logical_workers(); ++rank)
    state.mutable_ranks()->add_ranks();
  PAWL_ASSIGN_OR_RETURN(*state.mutable_tables(), Tables(registrations));
  state.set_rebuilt(true);
  state.set_ticket_key(newest->held_job().ticket_key());
  for (const RegisterRequest& server : registrations) {
    state.set_longest_lease_ms(
        std::max<uint64_t>(state.longest_lease_ms(), server.held_job().longest_lease_ms()));
  }
  return state;
}

RebuildCensus::RebuildCensus(size_t max_bytes)
    : max_bytes_(max_bytes), challenge_(std::max<uint64_t>(RandomNumber(), 1)) {}

absl::Status RebuildCensus::OnHeartbeat(const HeartbeatRequest& request) const {
  if (!request.has_server()) return OnOtherCall();
  return absl::AbortedError("the scheduler has lost its state; register again");
}

absl::Status RebuildCensus::OnRegister(const RegisterRequest& request) {
  const bool is_node =
      request.role() == SERVER_ROLE && !request.node().empty() && CheckRegistration(request).ok();
  if (!is_node) return OnOtherCall();
  absl::Status again = OnOtherCall();
  again.SetPayload(kRebuildChallengePayloadUrl, absl::Cord(absl::StrCat(challenge_)));
  if (request.has_rebuild_challenge() && request.rebuild_challenge() != challenge_) return again;
  const auto found = registrations_.find(request.node());
  const size_t bytes_before = found == registrations_.end() ? 0 : found->second.bytes;
  if (found == registrations_.end()) {
    if (registrations_.size() == kMaxServers) return again;
  } else {
    // A late registration must not replace a newer one.
    const RegisterRequest& before = found->second.request;
    const auto order = [](const RegisterRequest& one) {
      return std::tuple(one.start_count(), one.registration());
    };
    const bool same_process = before.process_nonce() == request.process_nonce();
    const bool is_older = same_process ? order(request) < order(before)
                                       : request.start_count() < before.start_count();
    if (is_older) return again;
  }
  if (request.data_damaged()) {
    // It may be the only one that had some acknowledged pushes, so it must count as missing.
    registration_bytes_ -= bytes_before;
    registrations_.erase(request.node());
    return again;
  }
  const size_t bytes = request.SpaceUsedLong();
  const size_t others = registration_bytes_ - bytes_before;
  if (bytes > max_bytes_ - others) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the scheduler is rebuilding its state and holds ", others,
                     " bytes of other servers' registrations; ", bytes,
                     " more would exceed the limit of ", max_bytes_));
  }
  registration_bytes_ = others + bytes;
  registrations_[request.node()] = {request, bytes};
  return again;
}

absl::Status RebuildCensus::OnOtherCall() {
  return absl::UnavailableError("the scheduler rebuilds its state from the servers");
}

std::vector<RegisterRequest> RebuildCensus::Registrations() const {
  std::vector<RegisterRequest> registrations;
  for (const auto& [node, registration] : registrations_)
    registrations.push_back(registration.request);
  return registrations;
}

Rebuild::Rebuild(RebuildOptions options, MonotonicDuration timeout, MonotonicTime now)
    : options_(std::move(options)), started_(now), deadline_(now + timeout) {}

std::optional<absl::StatusOr<SchedulerState>> Rebuild::Poll(
    const std::vector<RegisterRequest>& registrations, MonotonicTime now) {
  if (!state_.has_value()) {
    if (now < deadline_ && !HasAllServers(registrations, options_.without)) return std::nullopt;
    state_ = RebuildState(options_, registrations);
  }
  if (!state_->ok() || options_.without.empty()) return state_;
  // A server that was declared dead may serve reads while its lease lasts.
  if (now < started_ + std::chrono::milliseconds((*state_)->longest_lease_ms()))
    return std::nullopt;
  return state_;
}

}  // namespace pawl
