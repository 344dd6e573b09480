#include "server/storage/server_log.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/node_file.h"
#include "server/storage/snapshot/partition_file.h"
#include "server/storage/snapshot/partition_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How often Start looks whether the disk fails.
constexpr std::chrono::milliseconds kStartInterval{10};
// How soon a report is tried again of a partition that was busy.
constexpr std::chrono::milliseconds kBusyInterval{1};
// How long the threads of reports and of reads wait at a time; they are woken for each.
constexpr std::chrono::seconds kReportInterval{60};
// How long a segment that was read stays in memory for the next request.
constexpr std::chrono::seconds kSegmentKept{10};

std::chrono::steady_clock::time_point After(std::chrono::milliseconds interval) {
  return std::chrono::steady_clock::now() + interval;
}

absl::Status DeleteFilesIn(Env& env, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = env.List(folder);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  PAWL_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) PAWL_RETURN_IF_ERROR(env.Delete(JoinPath(folder, name)));
  return env.SyncFolder(folder);
}

// A snapshot that may replace a partition's log.
struct StoredFile final : StoredSnapshot {
  LogCut cut;
  // Null: the state before the first change.
  std::unique_ptr<SnapshotWriter> writer;
};

// The folders in the data directory that hold what was recovered.
std::vector<std::string> FoldersOf(const std::string& data_folder) {
  return {JoinPath(data_folder, kLogFolder), JoinPath(data_folder, kSnapshotFolder)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerLog>> ServerLog::Open(Env& env, ServerLogOptions options) {
  PAWL_RETURN_IF_ERROR(env.MakeFolder(options.data_folder));
  PAWL_RETURN_IF_ERROR(env.SyncFolder(FolderOf(options.data_folder)));
  PAWL_RETURN_IF_ERROR(CheckIsNotSchedulerFolder(env, options.data_folder));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, env.LockFolder(options.data_folder));
  // Once more now that a scheduler would see the lock's file.
  PAWL_RETURN_IF_ERROR(CheckIsNotSchedulerFolder(env, options.data_folder));
  std::unique_ptr<ServerLog> log(new ServerLog(env, std::move(options), std::move(lock)));
  PAWL_RETURN_IF_ERROR(log->CountStart());
  return log;
}

ServerLog::~ServerLog() { Stop(); }

absl::Status ServerLog::CountStart() {
  absl::StatusOr<NodeIdentity> identity = ReadNodeFile(env_, options_.data_folder, kServerDaemon);
  if (identity.ok()) {
    start_count_ = identity->start_count() + 1;
    if (identity->clearing()) return absl::OkStatus();
    identity->set_start_count(start_count_);
    PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, *identity, kServerDaemon));
    identity_ = *std::move(identity);
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(identity.status())) return identity.status();
  for (const std::string& folder : FoldersOf(options_.data_folder)) {
    const absl::StatusOr<std::vector<std::string>> names = env_.List(folder);
    if (absl::IsNotFound(names.status()) || (names.ok() && names->empty())) continue;
    PAWL_RETURN_IF_ERROR(names.status());
    return absl::DataLossError(absl::StrCat(
        JoinPath(options_.data_folder, "node"), " is missing, which says whose the files in ",
        folder, " are; put it back, or empty ", options_.data_folder, " to give them up"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Partition>>> ServerLog::Recover(
    const PartitionOptions& options) {
  if (!identity_.has_value()) std::abort();
  if (!Logs()) return std::vector<std::unique_ptr<Partition>>();
  const auto begin = std::chrono::steady_clock::now();
  PAWL_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Partition>> partitions, RecoverFiles(options));
  for (const std::string& note : recovered_->notes) spdlog::warn("{}", note);
  spdlog::info("recovered {} partitions of {} in job {} from {} in {} ms", partitions.size(),
               identity_->node(), identity_->job_id(), options_.data_folder,
               std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::steady_clock::now() - begin)
                   .count());
  return partitions;
}

absl::StatusOr<std::vector<std::unique_ptr<Partition>>> ServerLog::RecoverFiles(
    const PartitionOptions& options) {
  recovered_.reset();
  snapshots_ = std::make_unique<SnapshotStore>(env_, options_.data_folder, identity_->job_id());
  PAWL_RETURN_IF_ERROR(snapshots_->Open());
  PartitionSink sink(options);
  PAWL_ASSIGN_OR_RETURN(RecoveredLog recovered,
                        pawl::Recover(options_.data_folder, *snapshots_, sink));
  MutexLock lock(mu_);
  states_.clear();
  unsettled_.clear();
  for (const RecoveredPartition& partition : recovered.partitions) {
    PartitionState& state = states_[partition.partition];
    state.last = partition.last_index;
    // Start waits for it.
    state.durable = partition.last_index;
  }
  for (const QueuedRecord& record : recovered.unsettled)
    unsettled_[record.partition] = record.index;
  recovered_ = std::move(recovered);
  return sink.TakePartitions();
}

absl::Status ServerLog::JobIsOver() {
  if (!identity_.has_value() || identity_->over()) return absl::OkStatus();
  NodeIdentity identity = *identity_;
  identity.set_over(true);
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, identity, kServerDaemon));
  identity_ = std::move(identity);
  return absl::OkStatus();
}

absl::Status ServerLog::StartAnew(NodeIdentity identity) {
  if (identity_.has_value()) {
    spdlog::warn(
        "{} holds what {} had of job '{}' ({}), which {}: it is deleted, to begin anew as {} in "
        "job '{}' ({})",
        options_.data_folder, identity_->node(), identity_->job().name(), identity_->job_id(),
        identity_->over() ? "is over" : "may go on", identity.node(), identity.job().name(),
        identity.job_id());
  }
  recovered_.reset();
  identity_.reset();
  identity.set_start_count(start_count_);
  // What a crash leaves in between is known to be void.
  identity.set_clearing(true);
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, identity, kServerDaemon));
  PAWL_RETURN_IF_ERROR(DeleteFiles());
  identity.set_clearing(false);
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, identity, kServerDaemon));
  identity_ = std::move(identity);
  return Logs() ? RecoverFiles(PartitionOptions()).status() : absl::OkStatus();
}

absl::Status ServerLog::DeleteFiles() {
  for (const std::string& folder : FoldersOf(options_.data_folder)) {
    PAWL_RETURN_IF_ERROR(DeleteFilesIn(env_, folder));
  }
  return absl::OkStatus();
}

absl::Status ServerLog::Start(Events events, const PartitionOptions& partition_options) {
  if (!recovered_.has_value() || !Logs()) std::abort();
  events_ = std::move(events);
  partition_options_ = partition_options;
  WriteAheadLogOptions options = options_.log;
  options.data_folder = options_.data_folder;
  options.sync = identity_->job().durability() == FSYNC;
  {
    // Its thread reports only when all is set.
    MutexLock lock(mu_);
    log_ = std::make_unique<WriteAheadLog>(
        *snapshots_, std::move(options), *std::move(recovered_),
        [this](absl::Span<const DurableRecord> durable) { OnDurable(durable); });
    compactor_ =
        std::make_unique<LogCompactor>(*log_, *snapshots_, options_.log_bytes,
                                       [this](uint32_t partition) { return Hold(partition); });
    stopping_ = false;
    reports_end_ = false;
  }
  recovered_.reset();
  reporter_ = std::thread([this] { RunReports(); });
  if (absl::Status status = AwaitSettled(); !status.ok()) {
    Stop();
    return status;
  }
  background_ = std::thread([this] { RunBackground(); });
  reader_ = std::thread([this] { RunReads(); });
  if (options_.scrub_bytes_per_s > 0) {
    const std::string folder = JoinPath(options_.data_folder, kLogFolder);
    scrubber_ = std::make_unique<Scrubber>(
        *snapshots_, StartedLog(),
        ScrubberOptions{folder, options_.scrub_bytes_per_s, options_.scrub_pause},
        Scrubber::Events{
            .snapshot_damaged =
                [this](const SnapshotStore::Snapshot& snapshot, const absl::Status& damage) {
                  NoteDamage(snapshot.path, damage, snapshot);
                },
            .segment_damaged =
                [this, folder](uint64_t segment, const absl::Status& damage) {
                  NoteDamage(JoinPath(folder, SegmentFileName(segment)), damage, std::nullopt);
                }});
  }
  return absl::OkStatus();
}

absl::Status ServerLog::AwaitSettled() {
  const auto deadline = After(options_.disk_timeout);
  MutexLock lock(mu_);
  while (!unsettled_.empty()) {
    settled_.WaitUntil(mu_, After(kStartInterval));
    if (unsettled_.empty() || std::chrono::steady_clock::now() < deadline) continue;
    absl::Status status = log_->status();
    if (status.ok()) status = absl::UnavailableError("the disk does not answer");
    status = absl::Status(status.code(), absl::StrCat("the log in ", options_.data_folder,
                                                      " cannot be written: ", status.message()));
    // Now: Stop waits until the disk has ended what it has begun.
    spdlog::error("{}", std::string(status.message()));
    return status;
  }
  return absl::OkStatus();
}

void ServerLog::Stop() {
  scrubber_ = nullptr;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    background_work_.NotifyAll();
    read_work_.NotifyAll();
  }
  if (background_.joinable()) background_.join();
  if (reader_.joinable()) reader_.join();
  std::unique_ptr<WriteAheadLog> log;
  {
    MutexLock lock(mu_);
    log = std::move(log_);
    settled_.NotifyAll();
  }
  // Writes what is queued.
  log.reset();
  {
    MutexLock lock(mu_);
    reports_end_ = true;
    report_work_.NotifyAll();
  }
  if (reporter_.joinable()) reporter_.join();
}

absl::Status ServerLog::CheckRoom(uint64_t bytes) const {
  MutexLock lock(mu_);
  if (log_ == nullptr) return absl::UnavailableError("the log is not open");
  if (const absl::Status status = log_->status(); !status.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat("nothing new is taken while the log in ",
                                                     options_.data_folder,
                                                     " cannot be written: ", status.message()));
  }
  if (!log_->HasRoom(bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", options_.log.max_queued_bytes,
                                                     " bytes wait to be written to the log"));
  }
  return absl::OkStatus();
}

uint64_t ServerLog::DurableIndexLocked(uint32_t partition) const {
  const auto state = states_.find(partition);
  return state == states_.end() || state->second.cuts_queued > 0 ? 0 : state->second.durable;
}

uint64_t ServerLog::DurableIndex(uint32_t partition) const {
  MutexLock lock(mu_);
  return DurableIndexLocked(partition);
}

absl::Status ServerLog::AwaitDurable(uint32_t partition, uint64_t index) const {
  const auto deadline = After(options_.disk_timeout);
  MutexLock lock(mu_);
  while (DurableIndexLocked(partition) < index && log_ != nullptr &&
         settled_.WaitUntil(mu_, deadline)) {
  }
  if (DurableIndexLocked(partition) >= index) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("change ", index, " of partition ", partition, " is not durable yet",
                   log_ == nullptr ? "" : absl::StrCat(": ", log_->status().message())));
}

void ServerLog::Append(uint32_t partition, uint64_t index, uint64_t term, const ByteView& entry,
                       std::shared_ptr<const void> owner) {
  MutexLock lock(mu_);
  if (log_ == nullptr) return;
  PartitionState& state = states_[partition];
  if (index != state.last + 1) std::abort();
  state.last = index;
  state.kept_until.reset();
  log_->Append(partition, index, term, entry, std::move(owner));
}

absl::StatusOr<std::unique_ptr<StoredSnapshot>> ServerLog::StoreSnapshot(uint32_t partition,
                                                                         HeldSnapshot snapshot) {
  auto stored = std::make_unique<StoredFile>();
  stored->cut.index = snapshot.log_index();
  // The state before the first change needs no file.
  if (stored->cut.index == 0) return stored;
  LogPosition begun;
  {
    MutexLock lock(mu_);
    if (log_ == nullptr) return absl::UnavailableError("the log is not open");
    begun = log_->DurablePosition();
  }
  PAWL_ASSIGN_OR_RETURN(stored->writer,
                        snapshots_->BeginStored(partition, stored->cut.index, begun));
  PAWL_RETURN_IF_ERROR(WritePartition(std::move(snapshot), *stored->writer));
  PAWL_RETURN_IF_ERROR(stored->writer->Store());
  stored->cut.mark = stored->writer->mark();
  return stored;
}

void ServerLog::NoteCut(uint32_t partition, uint64_t index) {
  PartitionState& state = states_[partition];
  state.last = index;
  state.durable = 0;
  ++state.cuts_queued;
  ++state.cuts;
  state.kept_until.reset();
}

void ServerLog::Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) {
  auto& stored = static_cast<StoredFile&>(*snapshot);
  MutexLock lock(mu_);
  // Also when the log has stopped: what is durable is the log of the replica before.
  NoteCut(partition, stored.cut.index);
  if (log_ == nullptr) return;
  log_->AppendCut(partition, stored.cut);
  // From here on the file may be needed, also if the log ends before it says that it has the
  // record.
  if (stored.writer != nullptr) stored.writer->Keep();
}

LogHistory ServerLog::History() const {
  return LogHistory(*snapshots_, JoinPath(options_.data_folder, kLogFolder), log_->Segments());
}

absl::StatusOr<std::unique_ptr<Partition>> ServerLog::ReadBack(uint32_t partition, uint64_t index) {
  const auto deadline = After(options_.disk_timeout);
  std::optional<LogHistory> history;
  {
    MutexLock lock(mu_);
    states_[partition].kept_until = std::chrono::steady_clock::time_point::max();
    const auto is_busy = [&]() PAWL_REQUIRES(mu_) {
      const PartitionState& state = states_[partition];
      return state.cuts_queued > 0 || state.durable < std::min(index, state.last) ||
             compacting_ == partition;
    };
    while (log_ != nullptr && is_busy() && settled_.WaitUntil(mu_, deadline)) {
    }
    PartitionState& state = states_[partition];
    absl::Status status;
    if (log_ == nullptr || is_busy()) {
      status = absl::UnavailableError(absl::StrCat("the log of partition ", partition, " is busy"));
    } else if (state.last < index || log_->Released(partition) > index) {
      status = absl::NotFoundError(
          absl::StrCat("the log of partition ", partition, " does not reach to ", index));
    }
    if (!status.ok()) {
      state.kept_until.reset();
      return status;
    }
    history.emplace(History());
  }
  absl::StatusOr<std::unique_ptr<Partition>> read =
      history->ReadBack(partition, index, partition_options_);
  MutexLock lock(mu_);
  PartitionState& state = states_[partition];
  if (read.ok() && state.kept_until.has_value()) {
    state.kept_until = After(options_.kept_after_read_back);
  } else {
    state.kept_until.reset();
  }
  return read;
}

absl::Status ServerLog::Truncate(uint32_t partition, uint64_t index) {
  MutexLock lock(mu_);
  if (log_ == nullptr) return absl::UnavailableError("the log is not open");
  // Hold forgets it when the time is over: from then on what the log would go on from may be
  // deleted.
  if (!states_[partition].kept_until.has_value()) {
    return absl::AbortedError(
        absl::StrCat("partition ", partition, " was read back to ", index, " too long ago"));
  }
  NoteCut(partition, index);
  log_->AppendCut(partition, {index, std::nullopt});
  return absl::OkStatus();
}

void ServerLog::ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                            EntriesRead done) {
  {
    MutexLock lock(mu_);
    if (log_ != nullptr && !stopping_) {
      reads_.push_back({{partition, first, last, max_bytes},
                        std::move(done),
                        states_[partition].cuts,
                        After(options_.disk_timeout)});
      read_work_.NotifyAll();
      return;
    }
  }
  done(absl::AbortedError("the log has stopped"));
}

std::vector<ServerLog::Read> ServerLog::TakeReads() {
  std::vector<Read> taken;
  std::deque<Read> waiting;
  const auto now = std::chrono::steady_clock::now();
  for (Read& read : reads_) {
    const PartitionState& state = states_[read.wanted.partition];
    if (stopping_ || state.cuts != read.cuts) {
      read.wanted.Fail(absl::AbortedError("the log was cut or has stopped"));
    } else if (state.last < read.wanted.last) {
      read.wanted.Fail(absl::NotFoundError(absl::StrCat("the log ends at ", state.last)));
    } else if (DurableIndexLocked(read.wanted.partition) < read.wanted.last &&
               now >= read.deadline) {
      read.wanted.Fail(absl::UnavailableError(absl::StrCat(
          "change ", read.wanted.last, " is not written yet: ", log_->status().message())));
    } else if (DurableIndexLocked(read.wanted.partition) < read.wanted.last) {
      waiting.push_back(std::move(read));
      continue;
    }
    taken.push_back(std::move(read));
  }
  reads_.swap(waiting);
  return taken;
}

WriteAheadLog& ServerLog::StartedLog() {
  MutexLock lock(mu_);
  return *log_;
}

void ServerLog::RunReads() {
  // Where the last request ended the next one begins.
  std::optional<LogSegment> segment;
  while (true) {
    std::vector<Read> reads;
    std::optional<LogHistory> history;
    {
      MutexLock lock(mu_);
      while ((reads = TakeReads()).empty()) {
        if (stopping_) return;
        auto until =
            After(segment.has_value() ? std::chrono::seconds(kSegmentKept) : kReportInterval);
        for (const Read& read : reads_) until = std::min(until, read.deadline);
        if (!read_work_.WaitUntil(mu_, until)) segment.reset();
      }
      history.emplace(History());
    }
    std::vector<WantedEntries> wanted;
    for (Read& read : reads) wanted.push_back(std::move(read.wanted));
    history->ReadEntries(absl::MakeSpan(wanted), segment);
    for (size_t i = 0; i < reads.size(); ++i) {
      {
        MutexLock lock(mu_);
        if (states_[wanted[i].partition].cuts != reads[i].cuts)
          wanted[i].Fail(absl::AbortedError("the log was cut"));
      }
      if (wanted[i].status.ok()) {
        reads[i].done(std::move(wanted[i].entries));
      } else {
        reads[i].done(wanted[i].status);
      }
    }
  }
}

void ServerLog::Drop(uint32_t partition) {
  MutexLock lock(mu_);
  const auto state = states_.find(partition);
  if (state == states_.end() || state->second.last == 0) return;
  NoteCut(partition, 0);
  if (log_ != nullptr) log_->AppendCut(partition, {});
}

void ServerLog::OnDurable(absl::Span<const DurableRecord> durable) {
  MutexLock lock(mu_);
  for (const DurableRecord& entry : durable) {
    PartitionState& state = states_[entry.partition];
    if (entry.is_cut) --state.cuts_queued;
    if (const auto left = unsettled_.find(entry.partition);
        left != unsettled_.end() && left->second <= entry.index) {
      unsettled_.erase(left);
    }
    // The entry belongs to the replica that the queued cut replaces.
    if (state.cuts_queued > 0) continue;
    state.durable = entry.is_cut ? entry.index : std::max(state.durable, entry.index);
    to_report_.insert(entry.partition);
  }
  settled_.NotifyAll();
  report_work_.NotifyAll();
  if (!reads_.empty()) read_work_.NotifyAll();
}

void ServerLog::RunReports() {
  std::vector<uint32_t> busy;
  while (true) {
    absl::btree_set<uint32_t> reports;
    {
      MutexLock lock(mu_);
      if (!busy.empty() && !reports_end_) report_work_.WaitUntil(mu_, After(kBusyInterval));
      to_report_.insert(busy.begin(), busy.end());
      while (to_report_.empty() && !reports_end_)
        report_work_.WaitUntil(mu_, After(kReportInterval));
      if (to_report_.empty() || (!busy.empty() && reports_end_)) return;
      reports.swap(to_report_);
    }
    busy.clear();
    for (const uint32_t partition : reports) {
      if (!events_.durable(partition)) busy.push_back(partition);
    }
  }
}

void ServerLog::EndCompaction() {
  compacting_.reset();
  settled_.NotifyAll();
}

std::optional<HeldSnapshot> ServerLog::Hold(uint32_t partition) {
  uint64_t cuts = 0;
  {
    MutexLock lock(mu_);
    EndCompaction();
    PartitionState& state = states_[partition];
    if (std::chrono::steady_clock::now() < state.kept_until) return std::nullopt;
    state.kept_until.reset();
    // If a snapshot of what comes behind a cut were there before it, it could be taken for one of
    // the log as it was.
    if (state.last == 0 || state.cuts_queued > 0) return std::nullopt;
    cuts = state.cuts;
    compacting_ = partition;
  }
  std::optional<HeldSnapshot> held = events_.hold(partition);
  MutexLock lock(mu_);
  if (!held.has_value() || held->log_index() == 0 || states_[partition].cuts != cuts)
    return std::nullopt;
  return held;
}

void ServerLog::NoteDamage(const std::string& path, const absl::Status& damage,
                           std::optional<SnapshotStore::Snapshot> snapshot) {
  MutexLock lock(mu_);
  if (!damaged_.try_emplace(path, std::move(snapshot)).second) return;
  ++scrub_figures_.damaged;
  spdlog::error("{}; what it holds is in memory, and is written anew",
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
  for (const auto& [path, snapshot] : damaged) {
    if (!snapshot.has_value()) {
      // With the snapshots that are written for it nobody needs it, and it is deleted.
      segments = true;
      if (absl::IsNotFound(env_.FileSize(path).status())) repaired.push_back(path);
      continue;
    }
    // First the new one: until it is there the damaged one may be the only one.
    const absl::StatusOr<bool> written = compactor_->Compact(snapshot->partition);
    if (written.ok() && !*written && env_.FileSize(path).ok()) continue;
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
    spdlog::warn("damaged files in {} stay for now: {}", options_.data_folder, result.ToString());
  MutexLock lock(mu_);
  for (const std::string& path : repaired) {
    damaged_.erase(path);
    ++scrub_figures_.repaired;
    spdlog::info("{} is replaced", path);
  }
  return damaged_.empty() ? options_.compaction_interval : options_.compaction_retry_interval;
}

NodeLog::ScrubFigures ServerLog::scrub_figures() const {
  MutexLock lock(mu_);
  return scrub_figures_;
}

void ServerLog::RunBackground() {
  auto next_round = std::chrono::steady_clock::now();
  auto next_repair = next_round;
  while (true) {
    {
      MutexLock lock(mu_);
      const auto next_look = After(options_.compaction_interval);
      while (!stopping_ && background_work_.WaitUntil(mu_, next_look)) {
      }
      if (stopping_) return;
    }
    if (std::chrono::steady_clock::now() >= next_repair) next_repair = After(RepairDamaged());
    const bool is_due = std::chrono::steady_clock::now() >= next_round && compactor_->IsDue();
    const absl::Status status = is_due ? compactor_->RunRound() : absl::OkStatus();
    if (!status.ok()) {
      spdlog::warn("the log in {} grows, since a snapshot cannot be written: {}",
                   options_.data_folder, status.ToString());
      next_round = After(options_.compaction_retry_interval);
    }
    MutexLock lock(mu_);
    EndCompaction();
    rounds_ = compactor_->rounds();
  }
}

WriteAheadLogFigures ServerLog::figures() const {
  MutexLock lock(mu_);
  return log_ == nullptr ? WriteAheadLogFigures() : log_->figures();
}

uint64_t ServerLog::compaction_rounds() const {
  MutexLock lock(mu_);
  return rounds_;
}

}  // namespace pawl
