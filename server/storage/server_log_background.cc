#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "server/storage/server_log.h"
#include "spdlog/spdlog.h"

namespace pawl {

WriteAheadLog& ServerLog::StartedLog() {
  MutexLock lock(mu_);
  return *log_;
}

void ServerLog::EndCompaction() {
  compacting_.reset();
  progress_.NotifyAll();
}

std::optional<HeldSnapshot> ServerLog::Hold(uint32_t partition) {
  uint64_t resets = 0;
  {
    MutexLock lock(mu_);
    EndCompaction();
    PartitionState& state = states_[partition];
    if (std::chrono::steady_clock::now() < state.retained_until) return std::nullopt;
    state.retained_until.reset();
    // A snapshot of a later state, written before the reset, could be mistaken for one of the log
    // before it.
    if (state.last == 0 || state.resets_queued > 0) return std::nullopt;
    resets = state.resets;
    compacting_ = partition;
  }
  std::optional<HeldSnapshot> held = owner_->Hold(partition);
  MutexLock lock(mu_);
  if (!held.has_value() || held->log_index() == 0 || states_[partition].resets != resets)
    return std::nullopt;
  return held;
}

void ServerLog::NoteDamage(const std::string& path, const absl::Status& damage,
                           std::optional<SnapshotStore::Snapshot> snapshot) {
  MutexLock lock(mu_);
  if (!damaged_.try_emplace(path, std::move(snapshot)).second) return;
  ++scrub_figures_.damaged;
  spdlog::error("{}; its contents are in memory and are written again",
                std::string(damage.message()));
}

std::chrono::milliseconds ServerLog::RepairDamaged() {
  absl::btree_map<std::string, std::optional<SnapshotStore::Snapshot>> damaged;
  {
    MutexLock lock(mu_);
    damaged = damaged_;
  }
  std::vector<std::string> repaired;
  absl::Status result;
  bool segments = false;
  std::set<std::string> needed;
  for (const SegmentUse& use : StartedLog().Segments()) {
    if (use.is_being_deleted) continue;
    needed.insert(
        JoinPath(JoinPath(options_.data_folder, kLogFolder), SegmentFileName(use.segment)));
  }
  for (const auto& [path, snapshot] : damaged) {
    if (!snapshot.has_value()) {
      // The segment becomes superfluous with the new snapshots, and is deleted.
      segments = true;
      if (!needed.contains(path)) repaired.push_back(path);
      continue;
    }
    // First write the new one: until then the damaged one may be the only one.
    const absl::StatusOr<bool> written = compactor_->Compact(snapshot->partition);
    // Clang 14 captures no structured binding.
    const std::string& name = path;
    const bool is_needed =
        absl::c_any_of(snapshots_->List(), [&](const auto& listed) { return listed.path == name; });
    if (written.ok() && !*written && is_needed) continue;
    absl::Status status = written.status();
    if (status.ok() || absl::IsAborted(status)) status = snapshots_->DeleteIfDamaged(*snapshot);
    if (status.ok()) repaired.push_back(path);
    if (!status.ok()) result = status;
  }
  if (segments && repaired.size() < damaged.size()) {
    StartedLog().EndSegment();
    if (const absl::Status status = compactor_->RunRound(); !status.ok()) result = status;
  }
  if (!result.ok())
    spdlog::warn("damaged files in {} are not replaced yet: {}", options_.data_folder,
                 result.ToString());
  MutexLock lock(mu_);
  for (const std::string& path : repaired) {
    damaged_.erase(path);
    ++scrub_figures_.repaired;
    spdlog::info("{} was replaced", path);
  }
  return damaged_.empty() ? options_.compaction_interval : options_.compaction_retry_interval;
}

DurableLog::ScrubFigures ServerLog::scrub_figures() const {
  MutexLock lock(mu_);
  return scrub_figures_;
}

void ServerLog::RunBackground() {
  auto next_round = std::chrono::steady_clock::now();
  auto next_repair = next_round;
  while (true) {
    {
      MutexLock lock(mu_);
      const auto next_look = FromNow(options_.compaction_interval);
      while (!stopping_ && background_work_.WaitUntil(mu_, next_look)) {
      }
      if (stopping_) return;
    }
    if (std::chrono::steady_clock::now() >= next_repair) next_repair = FromNow(RepairDamaged());
    absl::Status status;
    if (std::chrono::steady_clock::now() >= next_round)
      status = compactor_->IsDue() ? compactor_->RunRound() : compactor_->EndRound();
    if (!status.ok() && !absl::IsCancelled(status)) {
      spdlog::warn("the log in {} grows, because a snapshot cannot be written: {}",
                   options_.data_folder, status.ToString());
      next_round = FromNow(options_.compaction_retry_interval);
    }
    MutexLock lock(mu_);
    EndCompaction();
    compaction_rounds_ = compactor_->rounds();
  }
}

WriteAheadLogFigures ServerLog::figures() const {
  MutexLock lock(mu_);
  return log_ == nullptr ? WriteAheadLogFigures() : log_->figures();
}

uint64_t ServerLog::compaction_rounds() const {
  MutexLock lock(mu_);
  return compaction_rounds_;
}

}  // namespace pawl
