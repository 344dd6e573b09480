// The scheduler's control calls and the reports to it.
#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/data_plane/data_plane.h"
#include "server/threads/helper_threads.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// The largest age of a heartbeat's figures.
constexpr std::chrono::milliseconds kReportInterval{50};
// How many partitions one heartbeat reports.
constexpr int kMaxPartitionsReported = 64;

// The digest of a primary's part of the table. Empty parts are left out: they are not part of the
// table's digest, and with all of them an answer could be too large to send.
std::optional<PartitionDigest> DigestOf(uint32_t table, Replica* replica) {
  if (replica == nullptr) return std::nullopt;
  HeldTable held;
  {
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) return std::nullopt;
    const TablePart* const part = replica->partition->FindTable(table);
    if (part == nullptr || part->row_count() == 0) return std::nullopt;
    held = part->Hold();
  }
  PartitionDigest digest;
  digest.set_table(table);
  digest.set_partition(replica->index);
  digest.set_crc32c(held.Digest());
  digest.set_rows(held.row_count());
  return digest;
}

}  // namespace

void DataPlane::FillHeartbeat(HeartbeatRequest& request) const {
  MutexLock lock(report_mu_);
  *request.mutable_server() = report_.server();
  *request.mutable_caught_up() = report_.caught_up();
  *request.mutable_partitions() = report_.partitions();
  *request.mutable_takeovers() = report_.takeovers();
  *request.mutable_silent() = report_.silent();
  if (report_.has_disk_failure()) *request.mutable_disk_failure() = report_.disk_failure();
  request.set_routing_epoch(report_.routing_epoch());
}

void DataPlane::PrepareReport() {
  {
    MutexLock lock(report_mu_);
    const MonotonicTime now = clock_.Now();
    if (now < next_report_) return;
    next_report_ = now + kReportInterval;
  }
  HeartbeatRequest report;
  *report.mutable_server() = Counters(/*may_be_old=*/true);
  const auto view = replica_map_.view();
  // Read after the view, which a handover precedes.
  const bool acts_by_view = !replica_map_.IsYielding();
  WatchDisk(*view, report);
  if (replicator_ != nullptr) {
    for (const auto& replica : view->replicas) {
      if (replica != nullptr) replicator_->ReportFollowers(*replica, report);
    }
  }
  if (replicator_ != nullptr) {
    MonotonicDuration patience = kMaxFollowerSilence;
    {
      MutexLock lock(closed_mu_);
      patience = std::max<MonotonicDuration>(patience, 2 * lease_);
    }
    for (SilentServer& server : replicator_->SilentServers(patience))
      *report.add_silent() = std::move(server);
  }
  for (Takeover& takeover : replica_map_.Takeovers()) *report.add_takeovers() = std::move(takeover);
  MutexLock lock(report_mu_);
  report.set_routing_epoch(acts_by_view ? view->epoch : report_.routing_epoch());
  AddPartitionFigures(*view, report);
  report_ = std::move(report);
}

void DataPlane::WatchDisk(const View& view, HeartbeatRequest& report) {
  bool waits_for_log = false;
  uint64_t durable = 0;
  for (const auto& replica : view.replicas) {
    if (log_ == nullptr || replica == nullptr) continue;
    // The log's own index, since a replica that is locked lags behind it.
    const uint64_t durable_index = log_->DurableIndex(replica->index);
    waits_for_log = waits_for_log || durable_index < replica->LastFigures().log_index;
    durable += durable_index;
  }
  const absl::Status written = log_ == nullptr ? absl::OkStatus() : log_->WriteStatus();
  const MonotonicTime now = clock_.Now();
  MutexLock lock(report_mu_);
  disk_.Note(written, waits_for_log, durable, now);
  if (const auto failure = disk_.Failure(now)) *report.mutable_disk_failure() = *failure;
}

void DataPlane::AddPartitionFigures(const View& view, HeartbeatRequest& report) {
  for (size_t looked_at = 0; looked_at < view.replicas.size(); ++looked_at) {
    if (report.partitions_size() >= kMaxPartitionsReported) return;
    last_reported_ = (last_reported_ + 1) % view.replicas.size();
    const auto& replica = view.replicas[last_reported_];
    if (replica == nullptr) continue;
    const ReplicaFigures last = replica->LastFigures();
    if (!last.is_primary) continue;
    PartitionFigures& figures = *report.add_partitions();
    figures.set_partition(replica->index);
    figures.set_parameter_bytes(last.parameter_bytes);
    figures.set_keys_pushed(last.counters.keys_pushed);
    figures.set_keys_pulled(last.keys_pulled);
  }
}

std::vector<RecoveredReplica> DataPlane::ReplicasWithData() const {
  std::vector<RecoveredReplica> replicas;
  const auto view = replica_map_.view();
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (replica->partition == nullptr) continue;
    RecoveredReplica& entry = replicas.emplace_back();
    entry.set_partition(replica->index);
    entry.set_log_index(replica->partition->log_index());
    entry.set_term(replica->partition->terms().TermOf(replica->partition->log_index()));
  }
  return replicas;
}

std::optional<HeldJob> DataPlane::Held() const {
  const auto view = replica_map_.view();
  if (view->epoch == 0) return std::nullopt;
  HeldJob held;
  *held.mutable_routing() = view->routing;
  for (const auto& [id, table] : view->tables) *held.add_tables() = table->spec();
  held.set_last_incarnation(view->incarnation);
  return held;
}

absl::StatusOr<std::shared_ptr<const DataPlane::View>> DataPlane::ViewAt(uint64_t epoch) const {
  auto view = replica_map_.view();
  if (view->epoch >= epoch) return view;
  return RoutingNotArrived(*view, epoch);
}

void DataPlane::ChangeAll(uint64_t epoch, const ChangeView& change,
                          std::function<absl::Status(Partition&)> apply, Done done) {
  const auto view = ViewAt(epoch);
  if (!view.ok()) return done(view.status());
  if (absl::Status room = CheckLogHasRoom(0); !room.ok()) return done(std::move(room));
  const auto one = [this, view = *view, change, apply = std::move(apply)](size_t i,
                                                                          Changes& changes) {
    const std::shared_ptr<Replica>& replica = view->replicas[i];
    if (replica == nullptr) return absl::OkStatus();
    ChangeView replica_change = change;
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) return absl::OkStatus();
    return Change(replica, replica_change, {}, apply, changes);
  };
  ChangeMany(options_.helpers, (*view)->replicas.size(), one, std::nullopt, std::move(done));
}

void DataPlane::CreateTable(uint64_t epoch, const TableSpec& spec, Done done) {
  const auto table = replica_map_.LearnTable(spec);
  if (!table.ok()) return done(table.status());
  ChangeView change;
  change.kind = ChangeView::Kind::kTableCreated;
  change.table = spec;
  ChangeAll(
      epoch, change,
      [table = *table](Partition& partition) { return partition.CreateTable(table); },
      [id = spec.id(), name = spec.name(), done = std::move(done)](absl::Status status) mutable {
        if (status.ok()) spdlog::info("table {} '{}' created", id, name);
        done(std::move(status));
      });
}

void DataPlane::KeepBest(uint64_t epoch, uint64_t step, Done done) {
  ChangeView change;
  change.kind = ChangeView::Kind::kBestKept;
  change.step = step;
  ChangeAll(
      epoch, change,
      [step](Partition& partition) {
        partition.KeepBest(step);
        return absl::OkStatus();
      },
      std::move(done));
}

void DataPlane::RestoreBest(uint64_t epoch, Done done) {
  ChangeView change;
  change.kind = ChangeView::Kind::kBestRestored;
  ChangeAll(
      epoch, change,
      [](Partition& partition) {
        if (partition.ShouldRestoreBest()) partition.RestoreBest();
        return absl::OkStatus();
      },
      std::move(done));
}

void DataPlane::ReleaseLogicalWorker(uint64_t epoch, uint32_t rank, uint64_t incarnation,
                                     Done done) {
  ChangeView change;
  change.kind = ChangeView::Kind::kReleased;
  change.sender = {Sender::Kind::kLogicalWorker, rank, incarnation};
  ChangeAll(
      epoch, change,
      [rank, incarnation](Partition& partition) { return partition.Release(rank, incarnation); },
      std::move(done));
}

ServerCounters DataPlane::Counters(bool may_be_old) {
  ServerCounters sum;
  const auto view = replica_map_.view();
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    ReplicaFigures figures;
    if (!may_be_old) {
      MutexLock lock(replica->mu);
      figures = replica->Figures();
    } else if (replica->mu.TryLock()) {
      figures = replica->Figures();
      replica->mu.Unlock();
      MutexLock lock(replica->last_figures_mu);
      replica->last_figures = figures;
    } else {
      MutexLock lock(replica->last_figures_mu);
      figures = replica->last_figures;
    }
    sum.set_retained_replicas(sum.retained_replicas() + figures.is_retained);
    sum.set_retained_bytes(sum.retained_bytes() + figures.retained_bytes);
    const PartitionCounters& counters = figures.counters;
    sum.set_pushes_applied(sum.pushes_applied() + counters.pushes_applied);
    sum.set_pushes_deduplicated(sum.pushes_deduplicated() + figures.pushes_deduplicated);
    sum.set_pushes_late(sum.pushes_late() + counters.pushes_late);
    sum.set_staleness_max(std::max(sum.staleness_max(), figures.staleness_max));
    sum.set_pulls_beyond_bound(sum.pulls_beyond_bound() + figures.pulls_beyond_bound);
    figures.clock_staleness.AddTo(*sum.mutable_clock_staleness());
    figures.update_staleness.AddTo(*sum.mutable_update_staleness());
    sum.set_keys_pulled(sum.keys_pulled() + figures.keys_pulled);
    sum.set_keys_pushed(sum.keys_pushed() + counters.keys_pushed);
    sum.set_rows(sum.rows() + figures.rows);
    sum.set_parameter_bytes(sum.parameter_bytes() + figures.parameter_bytes);
    sum.set_step(std::max(sum.step(), figures.step));
  }
  sum.set_requests_refused(requests_refused_.load(std::memory_order_relaxed));
  sum.set_waiting_calls(waiting_.Count());
  sum.set_bytes_in_flight(bytes_in_flight_->load(std::memory_order_relaxed));
  sum.set_max_bytes_in_flight(options_.max_bytes_in_flight);
  if (replicator_ != nullptr) {
    sum.set_snapshot_bytes_sent(replicator_->figures().snapshot_bytes);
    sum.set_catch_up_bytes_sent(replicator_->figures().entry_bytes);
  }
  if (options_.cpu_seconds != nullptr) sum.set_cpu_s(options_.cpu_seconds());
  return sum;
}

absl::StatusOr<InspectResponse> DataPlane::Inspect(uint64_t epoch, bool digest) {
  PAWL_ASSIGN_OR_RETURN(const auto view, ViewAt(epoch));
  InspectResponse response;
  *response.mutable_counters() = Counters(/*may_be_old=*/false);
  if (!digest) return response;
  // Ordered by table, then by partition.
  std::vector<uint32_t> tables;
  for (const auto& [id, table] : view->tables) tables.push_back(id);
  const auto digests = std::make_shared<std::vector<std::optional<PartitionDigest>>>(
      tables.size() * view->replicas.size());
  std::promise<void> all_computed;
  std::future<void> all = all_computed.get_future();
  ShareWork(
      options_.helpers, digests->size(),
      [view, tables = std::move(tables), digests](size_t i) {
        (*digests)[i] = DigestOf(tables[i / view->replicas.size()],
                                 view->replicas[i % view->replicas.size()].get());
        return std::vector<std::shared_ptr<WaitingCall>>();
      },
      [all_computed = std::move(all_computed)]() mutable { all_computed.set_value(); });
  // Helpers that have started will finish.
  all.wait();
  for (std::optional<PartitionDigest>& digest : *digests) {
    if (digest.has_value()) *response.add_digests() = *std::move(digest);
  }
  return response;
}

absl::StatusOr<FingerprintResponse> DataPlane::Fingerprint(uint64_t epoch) {
  PAWL_ASSIGN_OR_RETURN(const auto view, ViewAt(epoch));
  FingerprintResponse response;
  response.set_routing_epoch(view->epoch);
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    HeldSnapshot held;
    bool is_primary;
    {
      MutexLock lock(replica->mu);
      if (replica->role != ReplicaRole::kPrimary && replica->role != ReplicaRole::kBackup) continue;
      if (replica->partition == nullptr) continue;
      is_primary = replica->role == ReplicaRole::kPrimary;
      held = HoldSnapshot(*replica->partition);
    }
    ReplicaFingerprint& entry = *response.add_replicas();
    entry.set_partition(replica->index);
    entry.set_primary(is_primary);
    entry.set_log_index(held.log_index());
    const uint64_t fingerprint = held.Fingerprint();
    entry.set_fingerprint(static_cast<uint32_t>(fingerprint ^ (fingerprint >> 32)));
  }
  return response;
}

}  // namespace pawl
