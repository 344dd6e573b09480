#include "server/replication/replica_map.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/routing_changes.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// A larger routing table does not fit the metadata of an error. Then only its epoch is attached,
// and the receiver gets the table from the scheduler.
constexpr size_t kMaxAttachedRoutingBytes = 256 << 10;

// The replicas of a partition by this routing. A routing without replicas gives every partition to
// its primary alone, as a new partition.
PartitionReplicas ReplicasOf(const RoutingTable& routing, uint32_t partition) {
  if (partition < static_cast<uint32_t>(routing.replicas_size()))
    return routing.replicas(static_cast<int>(partition));
  PartitionReplicas alone;
  alone.set_primary_since(routing.epoch());
  alone.set_created_epoch(routing.epoch());
  return alone;
}

// kDropped also if the server is to retain the replica.
ReplicaRole RoleOf(const RoutingTable& routing, const PartitionReplicas& wanted, uint32_t p,
                   uint32_t self) {
  if (absl::c_linear_search(wanted.learners(), self)) return ReplicaRole::kLearner;
  if (absl::c_linear_search(wanted.backups(), self)) return ReplicaRole::kBackup;
  return routing.primary(p) == self ? ReplicaRole::kPrimary : ReplicaRole::kDropped;
}

}  // namespace

// A routing while it is being adopted.
struct ReplicaMap::Adoption {
  const RoutingTable& routing;
  const View& before;
  View& view;
  // This server's place in the routing.
  const uint32_t self;
  // Until when the promises of this server bind.
  const MonotonicTime promised_until;
  // The last epoch that the scheduler has confirmed.
  const uint64_t confirmed;
  std::vector<std::shared_ptr<WaitingCall>>& ready;
  std::vector<std::shared_ptr<WaitingCall>>& stale;
  std::vector<std::unique_ptr<Partition>>& dropped;
  size_t primaries = 0;
  size_t backups = 0;
  // Replicas that are retained because newer routings have them.
  size_t retained = 0;

  // The scheduler takes this server for dead and does not say which replicas to retain. The server
  // retains all, and reports them when it registers again.
  bool is_unlisted() const { return self == static_cast<uint32_t>(routing.servers_size()); }
};

absl::Status StaleRouting(const ReplicaMap::View& view, absl::string_view what) {
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat(what, "; this server is at routing epoch ", view.epoch));
  if (view.routing_bytes.size() <= kMaxAttachedRoutingBytes) {
    status.SetPayload(kRoutingPayloadUrl, absl::Cord(view.routing_bytes));
  } else {
    RoutingTable brief;
    brief.set_job_id(view.job_id);
    brief.set_epoch(view.epoch);
    status.SetPayload(kRoutingPayloadUrl, absl::Cord(brief.SerializeAsString()));
  }
  return status;
}

absl::Status RoutingNotArrived(const ReplicaMap::View& view, uint64_t epoch) {
  return absl::UnavailableError(absl::StrCat(
      "routing epoch ", epoch, " has not arrived at this server, which is at ", view.epoch));
}

absl::Status WrongJob(uint64_t job_id) {
  return absl::NotFoundError(absl::StrCat("job_id ", job_id, " is not the job of this server"));
}

void ReplicaMap::Begin(uint64_t job_id, const PartitionOptions& options, uint32_t min_in_sync,
                       std::string node, uint64_t incarnation, MonotonicDuration promise) {
  MutexLock adoption(adoption_mu_);
  MutexLock lock(mu_);
  former_promise_ = promise;
  confirmed_ = 0;
  yielded_ = 0;
  auto view = std::make_shared<View>(*view_);
  view->job_id = job_id;
  view->options = options;
  view->logs = log_ != nullptr;
  view->min_in_sync = min_in_sync;
  view->node = std::move(node);
  view->incarnation = incarnation;
  view->replicas.resize(options.partitions);
  view_ = std::move(view);
}

void ReplicaMap::AddRecovered(std::unique_ptr<Partition> partition) {
  MutexLock adoption(adoption_mu_);
  MonotonicTime former_promises_until;
  std::shared_ptr<View> view;
  {
    MutexLock lock(mu_);
    former_promises_until = started_ + former_promise_;
    view = std::make_shared<View>(*view_);
  }
  for (const auto& table : partition->tables()) view->tables[table->id()] = table;
  auto replica =
      std::make_shared<Replica>(partition->index(), view->logs, view->min_in_sync, learner_limits_);
  {
    MutexLock replica_lock(replica->mu);
    replica->role = ReplicaRole::kRetained;
    replica->durable_index = partition->log_index();
    replica->partition = std::move(partition);
    // The promises of the previous process are unknown, and still bind.
    replica->serves_from = former_promises_until;
  }
  MutexLock lock(mu_);
  const uint32_t index = replica->index;
  if (index >= view->replicas.size()) view->replicas.resize(index + 1);
  view->replicas[index] = std::move(replica);
  view_ = std::move(view);
}

bool ReplicaMap::IsAdoptable(const RoutingTable& routing, const View& before) {
  if (routing.since_epoch() != 0) {
    spdlog::error("routing epoch {} is incomplete and is not adopted", routing.epoch());
    return false;
  }
  if (routing.epoch() <= before.epoch) return false;
  // A peer announces a newer routing this way; the routing itself comes from the scheduler.
  if (routing.primary_size() == 0) return false;
  // A peer sends a refused routing again and again: log it once.
  if (routing.job_id() != before.job_id ||
      static_cast<uint32_t>(routing.primary_size()) != before.options.partitions) {
    if (routing.epoch() != std::exchange(refused_epoch_, routing.epoch())) {
      spdlog::error(
          "routing epoch {} is for job {:x} with {} partitions, not for {:x} with {}, and is not "
          "adopted",
          routing.epoch(), routing.job_id(), routing.primary_size(), before.job_id,
          before.options.partitions);
    }
    return false;
  }
  bool lists_all = true;
  for (int p = 0; p < routing.primary_size(); ++p)
    lists_all = lists_all && NamesListedServers(routing, p);
  if (!lists_all) {
    if (routing.epoch() != std::exchange(refused_epoch_, routing.epoch())) {
      spdlog::error("routing epoch {} refers to an unlisted server and is not adopted",
                    routing.epoch());
    }
    return false;
  }
  return true;
}

bool ReplicaMap::AdoptRouting(const RoutingTable& routing,
                              std::vector<std::shared_ptr<WaitingCall>>& ready,
                              std::vector<std::shared_ptr<WaitingCall>>& stale) {
  // Destroyed without locks, once the routing is published, since that takes long.
  std::vector<std::unique_ptr<Partition>> dropped;
  MutexLock adoption_lock(adoption_mu_);
  const std::shared_ptr<const View> before = this->view();
  if (!IsAdoptable(routing, *before)) return false;
  auto view = std::make_shared<View>(*before);
  view->epoch = routing.epoch();
  view->adopted_in = view->incarnation;
  view->routing = routing;
  view->routing_bytes = routing.SerializeAsString();
  view->replicas.resize(routing.primary_size());
  uint32_t self = 0;
  while (self < static_cast<uint32_t>(routing.servers_size()) &&
         routing.servers(self).node() != view->node)
    ++self;
  // A later incarnation is this process's next one, which has not started here yet and gets the
  // routing then. A routing that names an earlier incarnation does not know what this one has,
  // which may be the last copy.
  if (self < static_cast<uint32_t>(routing.servers_size()) &&
      routing.servers(self).incarnation() != view->incarnation) {
    return false;
  }
  const MonotonicTime promised_until = EndPromises(routing.epoch());
  uint64_t confirmed;
  {
    MutexLock lock(mu_);
    confirmed = confirmed_;
  }
  view->confirm_since = 0;
  Adoption adoption{routing,   *before, *view, self,   promised_until,
                    confirmed, ready,   stale, dropped};
  for (uint32_t p = 0; p < static_cast<uint32_t>(routing.primary_size()); ++p)
    AdoptPartition(p, adoption);
  if (replicator_ != nullptr) replicator_->PruneServers(routing);
  {
    MutexLock lock(mu_);
    // Tables may have been learned meanwhile.
    view->tables = view_->tables;
    view_ = std::move(view);
  }
  spdlog::info("routing epoch {}: primary of {}, backup of {} of {} partitions", routing.epoch(),
               adoption.primaries, adoption.backups, routing.primary_size());
  if (adoption.retained > 0) {
    spdlog::info(
        "routing epoch {} arrived late: {} replicas that it removes are retained, because newer "
        "routings have them",
        routing.epoch(), adoption.retained);
  }
  return true;
}

void ReplicaMap::AdoptPartition(uint32_t p, Adoption& adoption) {
  const RoutingTable& routing = adoption.routing;
  const uint32_t self = adoption.self;
  View& view = adoption.view;
  const PartitionReplicas wanted = ReplicasOf(routing, p);
  ReplicaRole role = RoleOf(routing, wanted, p, self);
  std::shared_ptr<Replica>& replica = view.replicas[p];
  // It was in sync since the partition was created, by a routing that it has not seen, and may
  // become primary until the removal is confirmed. It has everything that was acknowledged:
  // nothing.
  const bool was_in_sync = absl::c_linear_search(wanted.retained(), self) &&
                           std::max<uint64_t>(wanted.created_epoch(), 1) > adoption.before.epoch;
  if (role == ReplicaRole::kDropped && replica == nullptr && !was_in_sync) return;
  // Whether the primary is the first one since the partition was created. It may have no replica
  // yet.
  const bool is_first = wanted.primary_since() == std::max<uint64_t>(wanted.created_epoch(), 1);
  if (replica == nullptr) {
    // A backup since the partition was created that hears of it only now has everything that was
    // acknowledged: nothing.
    if (role == ReplicaRole::kPrimary && !is_first && adoption.before.epoch != 0) {
      spdlog::error(
          "routing epoch {} makes this server the primary of partition {}, whose data it does "
          "not have",
          routing.epoch(), p);
      return;
    }
    replica = std::make_shared<Replica>(p, view.logs, view.min_in_sync, learner_limits_);
    MutexLock replica_lock(replica->mu);
    if (role != ReplicaRole::kLearner || was_in_sync) {
      replica->partition = std::make_unique<Partition>(p, view.options);
    }
  }
  MutexLock replica_lock(replica->mu);
  // A learner that nothing had reached. Its earlier data is void in a partition that starts
  // again.
  if (role == ReplicaRole::kPrimary && is_first && replica->partition == nullptr) {
    if (log_ != nullptr) log_->Drop(p);
    replica->partition = std::make_unique<Partition>(p, view.options);
    replica->durable_index = 0;
  }
  const bool is_retained = adoption.is_unlisted() || routing.primary(p) == kNoPrimary ||
                           absl::c_linear_search(wanted.retained(), self);
  if (role == ReplicaRole::kDropped && is_retained && replica->partition != nullptr)
    role = ReplicaRole::kRetained;
  // Its primary follows a newer routing that is on its way here, and relies on what it has sent
  // by that routing.
  if (role == ReplicaRole::kDropped && replica->addressed_epoch > routing.epoch()) {
    ++adoption.retained;
    return;
  }
  const ReplicaRole was = std::exchange(replica->role, role);
  if (role != ReplicaRole::kPrimary) replica->cut = nullptr;
  if (was == ReplicaRole::kPrimary && role != ReplicaRole::kPrimary)
    replica->TakeAll(adoption.stale);
  if (wanted.has_yielding() && wanted.yielding() == self &&
      replica->primary_since == wanted.primary_since()) {
    if (was == ReplicaRole::kPrimary) BeginHandover(replica, wanted, routing);
  } else if (role != ReplicaRole::kPrimary || replica->primary_since != wanted.primary_since()) {
    // Also if it is primary again: by routings that it has not seen, another server may have been
    // primary in between.
    replica->DropFollowers();
  }
  if (role == ReplicaRole::kDropped) {
    replica->TakeAll(adoption.stale);
    if (log_ != nullptr) log_->Drop(p);
    adoption.dropped.push_back(std::move(replica->partition));
    replica = nullptr;
    return;
  }
  replica->primary_since = wanted.primary_since();
  if (role == ReplicaRole::kBackup) ++adoption.backups;
  std::optional<MonotonicTime> since = std::exchange(replica->without_primary_since, std::nullopt);
  if (role == ReplicaRole::kBackup && routing.primary(p) == kNoPrimary) {
    replica->without_primary_since = since.has_value() ? since : clock_.Now();
  }
  replica->unconfirmed_since = 0;
  if (role != ReplicaRole::kPrimary) return;
  if (was != ReplicaRole::kPrimary) {
    // Applies to any earlier primary: there may have been routings without a primary in between.
    replica->serves_from = std::max(replica->serves_from, adoption.promised_until);
    if (since.has_value()) ReportTakeover(*replica, *since);
  }
  AdoptAsPrimary(*replica, wanted, is_first, adoption);
}

void ReplicaMap::AdoptAsPrimary(Replica& replica, const PartitionReplicas& wanted, bool is_first,
                                Adoption& adoption) {
  ++adoption.primaries;
  View& view = adoption.view;
  view.confirm_since = std::max<uint64_t>(view.confirm_since, wanted.confirm_since());
  if (wanted.confirm_since() > adoption.confirmed)
    replica.unconfirmed_since = wanted.confirm_since();
  if (replicator_ != nullptr &&
      replica.index < static_cast<uint32_t>(adoption.routing.replicas_size())) {
    // The partition's first primary has not changed it, so no other server has, and empty backups
    // have everything.
    const bool is_new =
        is_first && replica.partition != nullptr && replica.partition->log_index() == 0;
    replicator_->SetFollowers(replica, adoption.routing, is_new);
  }
  replica.TakeReady(adoption.ready);
}

void ReplicaMap::BeginHandover(const std::shared_ptr<Replica>& replica,
                               const PartitionReplicas& wanted, const RoutingTable& routing) {
  const auto is_backup = [&](const Follower& follower) {
    return absl::c_any_of(wanted.backups(), [&](uint32_t server) {
      const ServerAddress& address = routing.servers(static_cast<int>(server));
      return address.node() == follower.node && address.incarnation() == follower.incarnation;
    });
  };
  for (Follower& follower : replica->followers) {
    if (!is_backup(follower)) replica->RequireSnapshot(follower);
  }
  std::erase_if(replica->followers, std::not_fn(is_backup));
  const auto is_fed = [](const Follower& follower) {
    return follower.state == Follower::State::kStreaming ||
           follower.state == Follower::State::kChangingStreams;
  };
  // Otherwise they get what they lack from the next primary.
  if (replica->partition == nullptr || !absl::c_all_of(replica->followers, is_fed))
    return replica->DropFollowers();
  replica->yields_until = clock_.Now() + kMaxHandoverTime;
  MutexLock lock(mu_);
  yielding_.push_back(replica);
  yielded_ = adopting_;
}

bool ReplicaMap::EndHandovers() {
  std::vector<std::shared_ptr<Replica>> yielding;
  {
    MutexLock lock(mu_);
    if (yielding_.empty()) return false;
    yielding = yielding_;
  }
  const MonotonicTime now = clock_.Now();
  std::vector<std::shared_ptr<Replica>> ended;
  for (const std::shared_ptr<Replica>& replica : yielding) {
    MutexLock lock(replica->mu);
    if (replica->yields_until.has_value()) {
      const uint64_t last = replica->partition->log_index();
      const auto lacks_changes = [&](const Follower& follower) { return follower.acked < last; };
      if (now < *replica->yields_until && absl::c_any_of(replica->followers, lacks_changes))
        continue;
      replica->DropFollowers();
    }
    ended.push_back(replica);
  }
  MutexLock lock(mu_);
  std::erase_if(yielding_,
                [&](const auto& replica) { return absl::c_linear_search(ended, replica); });
  return yielding_.empty();
}

bool ReplicaMap::IsYielding() const {
  MutexLock lock(mu_);
  return !yielding_.empty();
}

void ReplicaMap::ReportTakeover(Replica& replica, MonotonicTime without_primary_since) {
  const MonotonicTime now = clock_.Now();
  const MonotonicDuration still_waits =
      std::max(replica.serves_from, clock_.LeaseNow()) - clock_.LeaseNow();
  Takeover takeover;
  takeover.set_partition(replica.index);
  takeover.set_primary_since(replica.primary_since);
  takeover.set_pause_ms(static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                                  now + still_waits - without_primary_since)
                                                  .count()));
  MutexLock lock(mu_);
  takeovers_.emplace_back(now + kTakeoverReportTime, std::move(takeover));
  if (takeovers_.size() > kMaxTakeoversReported) takeovers_.pop_front();
}

uint64_t ReplicaMap::EpochToConfirm() const {
  MutexLock lock(mu_);
  const bool is_due = std::max(view_->confirm_since, yielded_) > confirmed_ && yielding_.empty() &&
                      view_->adopted_in == view_->incarnation;
  return is_due ? view_->epoch : 0;
}

void ReplicaMap::OnConfirmed(uint64_t epoch, std::vector<std::shared_ptr<WaitingCall>>& ready) {
  // A routing adopted meanwhile would miss the confirmation.
  MutexLock adoption(adoption_mu_);
  std::shared_ptr<const View> view;
  {
    MutexLock lock(mu_);
    confirmed_ = std::max(confirmed_, epoch);
    view = view_;
  }
  for (const std::shared_ptr<Replica>& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (replica->unconfirmed_since == 0 || replica->unconfirmed_since > epoch) continue;
    replica->unconfirmed_since = 0;
    replica->TakeReady(ready);
  }
}

absl::StatusOr<std::shared_ptr<const TableSchema>> ReplicaMap::LearnTable(const TableSpec& spec) {
  MutexLock lock(mu_);
  if (const auto found = view_->tables.find(spec.id()); found != view_->tables.end()) {
    if (found->second->spec().SerializeAsString() == spec.SerializeAsString()) return found->second;
    return absl::AlreadyExistsError(absl::StrCat(
        "table ", spec.id(), " exists as '", found->second->spec().name(), "' with another spec"));
  }
  PAWL_ASSIGN_OR_RETURN(auto table, TableSchema::Create(spec, view_->options.job_seed));
  if (view_->tables.size() >= kMaxTablesOfPartition) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a job has at most ", kMaxTablesOfPartition, " tables"));
  }
  auto view = std::make_shared<View>(*view_);
  view->tables[spec.id()] = table;
  view_ = std::move(view);
  return table;
}

std::vector<Takeover> ReplicaMap::Takeovers() const {
  const MonotonicTime now = clock_.Now();
  std::vector<Takeover> reported;
  MutexLock lock(mu_);
  for (const auto& [until, takeover] : takeovers_) {
    if (now < until) reported.push_back(takeover);
  }
  return reported;
}

ReplicationHeader ReplicaMap::Header() const {
  const std::shared_ptr<const View> view = this->view();
  ReplicationHeader header;
  header.set_job_id(view->job_id);
  header.set_epoch(view->epoch);
  header.set_node(view->node);
  header.set_incarnation(view->incarnation);
  return header;
}

MonotonicTime ReplicaMap::EndPromises(uint64_t epoch) {
  MutexLock lock(mu_);
  adopting_ = epoch;
  MonotonicTime until = MonotonicTime::min();
  for (const auto& [server, promised_until] : promises_) until = std::max(until, promised_until);
  return until;
}

bool ReplicaMap::Promise(const ReplicationHeader& sender, MonotonicDuration duration) {
  const MonotonicTime now = clock_.LeaseNow();
  MutexLock lock(mu_);
  if (sender.epoch() < adopting_) return false;
  for (auto it = promises_.begin(); it != promises_.end();)
    it = it->second < now ? promises_.erase(it) : std::next(it);
  promises_[Server(sender.node(), sender.incarnation())] = now + duration;
  return true;
}

}  // namespace pawl
