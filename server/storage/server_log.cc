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

// Where SetDamagedFilesAside moves files, in the data directory.
constexpr char kDamagedFolder[] = "damaged";
// How often Start checks whether the disk fails.
constexpr std::chrono::milliseconds kStartInterval{10};
// How soon a report is retried for a partition that was busy.
constexpr std::chrono::milliseconds kBusyInterval{1};
// The longest uninterrupted wait for reports; each one wakes the thread.
constexpr std::chrono::seconds kReportInterval{60};

absl::Status DeleteFilesIn(Env& env, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = env.List(folder);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  PAWL_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) PAWL_RETURN_IF_ERROR(env.Delete(JoinPath(folder, name)));
  return env.SyncFolder(folder);
}

// A snapshot that may replace a partition's log.
struct StoredFile final : StoredSnapshot {
  LogReset reset;
  // Null: the state before the first change.
  std::unique_ptr<SnapshotWriter> writer;
};

// The folders in the data directory that hold the recovered data.
std::vector<std::string> FoldersOf(const std::string& data_folder) {
  return {JoinPath(data_folder, kLogFolder), JoinPath(data_folder, kSnapshotFolder)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerLog>> ServerLog::Open(Env& env, ServerLogOptions options) {
  PAWL_RETURN_IF_ERROR(env.MakeFolder(options.data_folder));
  PAWL_RETURN_IF_ERROR(env.SyncFolder(FolderOf(options.data_folder)));
  PAWL_RETURN_IF_ERROR(CheckIsNotSchedulerFolder(env, options.data_folder));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, env.LockFolder(options.data_folder));
  // Check again now that a scheduler would see the lock's file.
  PAWL_RETURN_IF_ERROR(CheckIsNotSchedulerFolder(env, options.data_folder));
  std::unique_ptr<ServerLog> log(new ServerLog(env, std::move(options), std::move(lock)));
  PAWL_RETURN_IF_ERROR(log->CountStart());
  return log;
}

ServerLog::~ServerLog() { Stop(); }

absl::Status ServerLog::CountStart() {
  absl::StatusOr<NodeIdentity> identity = ReadNodeFile(env_, options_.data_folder, kServerDaemon);
  if (identity.ok()) {
    start_count_ = identity->life() + 1;
    if (identity->clearing()) return absl::OkStatus();
    identity->set_life(start_count_);
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
        JoinPath(options_.data_folder, "node"), " is missing, which says whose files are in ",
        folder, "; restore it, or empty ", options_.data_folder, " to discard the files"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Partition>>> ServerLog::Recover(
    const PartitionOptions& options) {
  if (!identity_.has_value()) std::abort();
  if (!Logs()) return std::vector<std::unique_ptr<Partition>>();
  if (identity_->moving_damaged_files()) {
    return absl::DataLossError(
        absl::StrCat("an earlier start has moved only some damaged files to ",
                     JoinPath(options_.data_folder, kDamagedFolder)));
  }
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> recovered = RecoverFiles(options);
  // A second time, because a read error can be transient.
  if (absl::IsDataLoss(recovered.status())) recovered = RecoverFiles(options);
  if (absl::IsDataLoss(recovered.status())) return DamageError(recovered.status());
  PAWL_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Partition>> partitions, std::move(recovered));
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
  PartitionSink sink(options, options_.should_continue);
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

absl::Status ServerLog::DamageError(absl::Status damage) const {
  const std::string aside = JoinPath(options_.data_folder, kDamagedFolder);
  const absl::Status listed = env_.List(aside).status();
  if (absl::IsNotFound(listed)) return damage;
  PAWL_RETURN_IF_ERROR(listed);
  return absl::InvalidArgumentError(
      absl::StrCat(damage.message(), "; ", aside,
                   " already has the files of an earlier damage: check the disk, ",
                   "and move that folder elsewhere before this server starts again"));
}

absl::Status ServerLog::SetDamagedFilesAside() {
  if (!identity_.has_value() || !Logs()) std::abort();
  NodeIdentity identity = *identity_;
  identity.set_moving_damaged_files(true);
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, identity, kServerDaemon));
  const std::string aside = JoinPath(options_.data_folder, kDamagedFolder);
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(aside));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(options_.data_folder));
  for (const char* const name : {kLogFolder, kSnapshotFolder}) {
    const std::string from = JoinPath(options_.data_folder, name);
    const std::string to = JoinPath(aside, name);
    PAWL_RETURN_IF_ERROR(env_.MakeFolder(to));
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(aside));
    const absl::StatusOr<std::vector<std::string>> files = env_.List(from);
    if (absl::IsNotFound(files.status())) continue;
    PAWL_RETURN_IF_ERROR(files.status());
    for (const std::string& file : *files)
      PAWL_RETURN_IF_ERROR(env_.Rename(JoinPath(from, file), JoinPath(to, file)));
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(to));
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(from));
  }
  PAWL_RETURN_IF_ERROR(RecoverFiles(PartitionOptions()).status());
  identity.set_moving_damaged_files(false);
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, identity, kServerDaemon));
  identity_ = std::move(identity);
  spdlog::warn("the damaged files are now in {}; delete it once the job has all its replicas",
               aside);
  MutexLock lock(mu_);
  ++scrub_figures_.damaged;
  ++scrub_figures_.repaired;
  return absl::OkStatus();
}

absl::Status ServerLog::MarkJobEnded() {
  if (!identity_.has_value() || identity_->over()) return absl::OkStatus();
  NodeIdentity identity = *identity_;
  identity.set_over(true);
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, options_.data_folder, identity, kServerDaemon));
  identity_ = std::move(identity);
  return absl::OkStatus();
}

absl::Status ServerLog::Initialize(NodeIdentity identity) {
  if (identity_.has_value()) {
    spdlog::warn(
        "{} holds the data of {} in job '{}' ({}), which {}: it is deleted, and the server starts "
        "as "
        "{} in job '{}' ({})",
        options_.data_folder, identity_->node(), identity_->job().name(), identity_->job_id(),
        identity_->over() ? "has ended" : "may continue", identity.node(), identity.job().name(),
        identity.job_id());
  }
  recovered_.reset();
  identity_.reset();
  identity.set_life(start_count_);
  // After a crash in between, the rest is known to be void.
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

absl::Status ServerLog::Start(Owner& owner, const PartitionOptions& partition_options) {
  if (!recovered_.has_value() || !Logs()) std::abort();
  owner_ = &owner;
  partition_options_ = partition_options;
  WriteAheadLogOptions options = options_.log;
  options.data_folder = options_.data_folder;
  options.sync = identity_->job().durability() == FSYNC;
  {
    // The log's thread reports only when all members are set.
    MutexLock lock(mu_);
    log_ = std::make_unique<WriteAheadLog>(
        *snapshots_, std::move(options), *std::move(recovered_),
        [this](absl::Span<const DurableRecord> durable) { OnDurable(durable); });
    compactor_ = std::make_unique<LogCompactor>(
        *log_, *snapshots_, options_.log_bytes,
        [this](uint32_t partition) { return Hold(partition); }, [this] { return !IsStopping(); });
    stopping_ = false;
    reporter_stopping_ = false;
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
  const auto deadline = FromNow(options_.disk_timeout);
  MutexLock lock(mu_);
  while (!unsettled_.empty()) {
    progress_.WaitUntil(mu_, FromNow(kStartInterval));
    if (unsettled_.empty() || std::chrono::steady_clock::now() < deadline) continue;
    absl::Status status = log_->status();
    if (status.ok()) status = absl::UnavailableError("the disk does not answer");
    status = absl::Status(status.code(), absl::StrCat("the log in ", options_.data_folder,
                                                      " cannot be written: ", status.message()));
    // Log it now: Stop waits until the disk has finished what it has started.
    spdlog::error("{}", std::string(status.message()));
    return status;
  }
  return absl::OkStatus();
}

bool ServerLog::IsStopping() const {
  MutexLock lock(mu_);
  return stopping_;
}

void ServerLog::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    background_work_.NotifyAll();
    read_work_.NotifyAll();
    progress_.NotifyAll();
  }
  scrubber_ = nullptr;
  // What waits for these threads ends with UNAVAILABLE.
  stores_.Stop();
  read_backs_.Stop();
  if (background_.joinable()) background_.join();
  if (reader_.joinable()) reader_.join();
  std::unique_ptr<WriteAheadLog> log;
  {
    MutexLock lock(mu_);
    log = std::move(log_);
    progress_.NotifyAll();
  }
  // Writes what is queued.
  log.reset();
  {
    MutexLock lock(mu_);
    reporter_stopping_ = true;
    report_work_.NotifyAll();
  }
  if (reporter_.joinable()) reporter_.join();
}

absl::Status ServerLog::WriteStatusLocked() const {
  if (log_ == nullptr) return absl::UnavailableError("the log is not open");
  const absl::Status status = log_->status();
  if (status.ok()) return status;
  return absl::ResourceExhaustedError(absl::StrCat("no change is accepted while the log in ",
                                                   options_.data_folder,
                                                   " cannot be written: ", status.message()));
}

absl::Status ServerLog::WriteStatus() const {
  MutexLock lock(mu_);
  return WriteStatusLocked();
}

absl::Status ServerLog::CheckRoom(uint64_t bytes) const {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(WriteStatusLocked());
  if (!log_->HasRoom(bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", options_.log.max_queued_bytes, " bytes are queued for the log"));
  }
  return absl::OkStatus();
}

uint64_t ServerLog::DurableIndexLocked(uint32_t partition) const {
  const auto state = states_.find(partition);
  return state == states_.end() || state->second.resets_queued > 0 ? 0 : state->second.durable;
}

uint64_t ServerLog::DurableIndex(uint32_t partition) const {
  MutexLock lock(mu_);
  return DurableIndexLocked(partition);
}

absl::Status ServerLog::AwaitDurable(uint32_t partition, uint64_t index) const {
  const auto deadline = FromNow(options_.disk_timeout);
  MutexLock lock(mu_);
  while (DurableIndexLocked(partition) < index && log_ != nullptr &&
         progress_.WaitUntil(mu_, deadline)) {
  }
  if (DurableIndexLocked(partition) >= index) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("change ", index, " of partition ", partition, " is not durable yet",
                   log_ == nullptr ? "" : absl::StrCat(": ", log_->status().message())));
}

void ServerLog::Append(uint32_t partition, uint64_t index, uint64_t term, ByteView entry,
                       std::shared_ptr<const void> owner) {
  MutexLock lock(mu_);
  if (log_ == nullptr) return;
  PartitionState& state = states_[partition];
  if (index != state.last + 1) std::abort();
  state.last = index;
  state.retained_until.reset();
  log_->Append(partition, index, term, std::move(entry), std::move(owner));
}

void ServerLog::WriteQueued() {
  MutexLock lock(mu_);
  if (log_ != nullptr) log_->WriteQueued();
}

absl::StatusOr<std::unique_ptr<StoredSnapshot>> ServerLog::StoreSnapshot(uint32_t partition,
                                                                         HeldSnapshot snapshot) {
  auto stored = std::make_unique<StoredFile>();
  stored->reset.index = snapshot.log_index();
  // The state before the first change needs no file.
  if (stored->reset.index == 0) return stored;
  LogPosition start_position;
  {
    MutexLock lock(mu_);
    if (log_ == nullptr || stopping_) return absl::UnavailableError("the log is not open");
    start_position = log_->DurablePosition();
  }
  PAWL_ASSIGN_OR_RETURN(stored->writer,
                        snapshots_->BeginStored(partition, stored->reset.index, start_position));
  const absl::Status written =
      WritePartition(std::move(snapshot), *stored->writer, [this] { return !IsStopping(); });
  if (absl::IsCancelled(written)) return absl::UnavailableError("the log is being closed");
  PAWL_RETURN_IF_ERROR(written);
  PAWL_RETURN_IF_ERROR(stored->writer->Store());
  stored->reset.mark = stored->writer->mark();
  return stored;
}

void ServerLog::StoreSnapshotAsync(uint32_t partition, HeldSnapshot snapshot, StoreDone done) {
  stores_.Add([this, partition, snapshot = std::move(snapshot), done = std::move(done)]() mutable {
    done(StoreSnapshot(partition, std::move(snapshot)));
  });
}

void ServerLog::NoteReset(uint32_t partition, uint64_t index) {
  PartitionState& state = states_[partition];
  state.last = index;
  state.durable = 0;
  ++state.resets_queued;
  ++state.resets;
  state.retained_until.reset();
}

void ServerLog::Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) {
  auto& stored = static_cast<StoredFile&>(*snapshot);
  MutexLock lock(mu_);
  // Also if the log has stopped: what is durable belongs to the previous replica.
  NoteReset(partition, stored.reset.index);
  if (log_ == nullptr) return;
  log_->AppendReset(partition, stored.reset);
  // From here on the file may be needed, even if the log ends before it reports the record.
  if (stored.writer != nullptr) stored.writer->Keep();
}

void ServerLog::Drop(uint32_t partition) {
  MutexLock lock(mu_);
  const auto state = states_.find(partition);
  if (state == states_.end() || state->second.last == 0) return;
  NoteReset(partition, 0);
  if (log_ != nullptr) log_->AppendReset(partition, {});
}

void ServerLog::OnDurable(absl::Span<const DurableRecord> durable) {
  MutexLock lock(mu_);
  for (const DurableRecord& entry : durable) {
    PartitionState& state = states_[entry.partition];
    if (entry.is_reset) --state.resets_queued;
    if (const auto left = unsettled_.find(entry.partition);
        left != unsettled_.end() && left->second <= entry.index) {
      unsettled_.erase(left);
    }
    // The entry belongs to the replica that the queued reset replaces.
    if (state.resets_queued > 0) continue;
    state.durable = entry.is_reset ? entry.index : std::max(state.durable, entry.index);
    to_report_.insert(entry.partition);
  }
  progress_.NotifyAll();
  report_work_.NotifyAll();
  if (!reads_.empty()) read_work_.NotifyAll();
}

void ServerLog::RunReports() {
  std::vector<uint32_t> busy;
  while (true) {
    absl::btree_set<uint32_t> reports;
    {
      MutexLock lock(mu_);
      if (!busy.empty() && !reporter_stopping_) report_work_.WaitUntil(mu_, FromNow(kBusyInterval));
      to_report_.insert(busy.begin(), busy.end());
      while (to_report_.empty() && !reporter_stopping_)
        report_work_.WaitUntil(mu_, FromNow(kReportInterval));
      if (to_report_.empty() || (!busy.empty() && reporter_stopping_)) return;
      reports.swap(to_report_);
    }
    busy.clear();
    for (const uint32_t partition : reports) {
      if (!owner_->OnDurable(partition)) busy.push_back(partition);
    }
  }
}

}  // namespace pawl
