// The data directory of a server: its identity, its partitions, and the log of their changes.
#ifndef PAWL_SERVER_STORAGE_SERVER_LOG_H_
#define PAWL_SERVER_STORAGE_SERVER_LOG_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/daemon/node_identity.pb.h"
#include "server/replication/durable_log.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/recovery.h"
#include "server/storage/scrubber.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/log_compactor.h"
#include "server/storage/wal/log_history.h"
#include "server/storage/wal/write_ahead_log.h"
#include "server/threads/work_thread.h"

namespace pawl {

struct ServerLogOptions {
  // Created if it is missing.
  std::string data_folder;
  // See LogCompactor. A start replays up to this much; two snapshots of each partition lie beside
  // it.
  uint64_t log_bytes = uint64_t{1} << 30;
  // ServerLog sets the folder and the durability.
  WriteAheadLogOptions log;
  // How often to check whether snapshots are due.
  std::chrono::milliseconds compaction_interval{200};
  // The pause after a failed round of snapshots.
  std::chrono::milliseconds compaction_retry_interval{5000};
  // The rate at which files on disk are reread (Scrubber); 0: never.
  uint64_t scrub_bytes_per_s = uint64_t{8} << 20;
  std::chrono::milliseconds scrub_pause{1000};
  // How long Start, AwaitDurable, ReadBack and ReadEntries wait for a disk that fails or does not
  // answer. Start also waits, and logs that it does, for the system to return from writes in
  // progress.
  std::chrono::milliseconds disk_timeout{30000};
  // False ends Recover with CANCELLED. Called by its thread.
  std::function<bool()> should_continue = [] { return true; };
  // How long the files that ReadBack has read are retained for Truncate.
  std::chrono::milliseconds retained_after_read_back{600000};
};

// The life cycle in one process:
//
//   auto log = ServerLog::Open(Env::Real(), options);     // locks the folder
//   if (log->identity()) partitions = log->Recover(...);  // or SetDamagedFilesAside, see there
//   register, as identity() if there is one
//   if (the registration is for another job or node) log->Initialize(new identity);
//   log->Start(owner, options);                           // before the first routing
//   ...
//   log->Stop();                                          // before the owner dies
//   log->MarkJobEnded();                                  // if the job has ended
//
// Open to Start are for one thread, and so is Stop; all other functions are thread-safe. The
// owner is called without locks.
//
// Invariants:
// 1. The log holds one run of a partition's changes, from the first or after a snapshot.
// 2. While a reset of a partition's log is queued, nothing of the partition counts as durable, so
//    the replica never inherits the durable index of the previous one; and no snapshot of it is
//    committed.
// 3. The thread that writes the log does not call the owner. Reports have their own thread, which
//    waits for no partition.
//
// server_log.cc opens and writes the log, server_log_history.cc reads it back, and
// server_log_background.cc compacts it and repairs damaged files.
class ServerLog final : public DurableLog {
 public:
  // Opens the folder and counts the start of the process, durably. UNAVAILABLE: another process has
  // the folder. DATA_LOSS: the node file is damaged, or missing beside a log. RESOURCE_EXHAUSTED:
  // the disk is full.
  static absl::StatusOr<std::unique_ptr<ServerLog>> Open(Env& env, ServerLogOptions options);
  ~ServerLog() override;

  // DurableLog.
  const std::optional<NodeIdentity>& identity() const override { return identity_; }
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions& options) override;
  absl::Status SetDamagedFilesAside() override;
  absl::Status MarkJobEnded() override;
  absl::Status Initialize(NodeIdentity identity) override;
  absl::Status Start(Owner& owner, const PartitionOptions& options) override;
  void Stop() override;
  absl::Status CheckRoom(uint64_t bytes) const override;
  absl::Status WriteStatus() const override;
  uint64_t DurableIndex(uint32_t partition) const override;
  absl::Status AwaitDurable(uint32_t partition, uint64_t index) const override;
  void Append(uint32_t partition, uint64_t index, uint64_t term, ByteView entry,
              std::shared_ptr<const void> owner) override;
  void WriteQueued() override;
  absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t partition,
                                                                HeldSnapshot snapshot) override;
  void StoreSnapshotAsync(uint32_t partition, HeldSnapshot snapshot, StoreDone done) override;
  void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) override;
  absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition, uint64_t index) override;
  void ReadBackAsync(uint32_t partition, uint64_t index, ReadBackDone done) override;
  absl::Status Truncate(uint32_t partition, uint64_t index) override;
  void ForgetReadBack(uint32_t partition) override;
  void ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                   EntriesRead done) override;
  void Drop(uint32_t partition) override;
  ScrubFigures scrub_figures() const override;

  // Whether the job writes a log at all.
  bool Logs() const { return identity_.has_value() && identity_->job().durability() != MEMORY; }
  WriteAheadLogFigures figures() const;
  uint64_t compaction_rounds() const;

 private:
  // The state of a partition's log.
  struct PartitionState {
    // The last change in the log, queued or in a snapshot; 0: nothing.
    uint64_t last = 0;
    uint64_t durable = 0;
    // Resets that are queued and not durable yet.
    uint32_t resets_queued = 0;
    // All resets that were ever queued.
    uint64_t resets = 0;
    // Set by ReadBack until a Truncate is queued or is no longer allowed. Until then the compactor
    // leaves the partition alone, so that the entries that Truncate needs stay on disk.
    std::optional<std::chrono::steady_clock::time_point> retained_until;
  };
  // A call of ReadEntries.
  struct Read {
    WantedEntries wanted;
    EntriesRead done;
    // PartitionState::resets at the time of the call.
    uint64_t resets = 0;
    // How long the read waits for queued entries.
    std::chrono::steady_clock::time_point deadline;
  };

  ServerLog(Env& env, ServerLogOptions options, std::unique_ptr<FolderLock> lock)
      : env_(env), options_(std::move(options)), lock_(std::move(lock)) {}

  static std::chrono::steady_clock::time_point FromNow(std::chrono::milliseconds interval) {
    return std::chrono::steady_clock::now() + interval;
  }
  absl::Status CountStart();
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> RecoverFiles(
      const PartitionOptions& options);
  // The error for `damage`: itself, or INVALID_ARGUMENT if SetDamagedFilesAside has already set
  // files aside.
  absl::Status DamageError(absl::Status damage) const;
  absl::Status DeleteFiles();
  void OnDurable(absl::Span<const DurableRecord> durable);
  void RunReports();
  // Waits until the rewritten records are durable. An error after disk_timeout.
  absl::Status AwaitSettled();
  // Records that the partition's log is reset to end at `index`.
  void NoteReset(uint32_t partition, uint64_t index) PAWL_REQUIRES(mu_);
  uint64_t DurableIndexLocked(uint32_t partition) const PAWL_REQUIRES(mu_);
  absl::Status WriteStatusLocked() const PAWL_REQUIRES(mu_);
  // Called by the compactor, which writes one snapshot after the other.
  std::optional<HeldSnapshot> Hold(uint32_t partition);
  void EndCompaction() PAWL_REQUIRES(mu_);
  bool IsStopping() const PAWL_EXCLUDES(mu_);
  LogHistory History() const PAWL_REQUIRES(mu_);
  // The reads that can be answered now, from the log or with an error.
  std::vector<Read> TakeReads() PAWL_REQUIRES(mu_);
  // For threads that Stop ends before it deletes the log.
  WriteAheadLog& StartedLog() PAWL_EXCLUDES(mu_);
  void RunReads();
  void RunBackground();
  void NoteDamage(const std::string& path, const absl::Status& damage,
                  std::optional<SnapshotStore::Snapshot> snapshot);
  // Replaces damaged files by the copy in memory. Returns the pause before the next try.
  std::chrono::milliseconds RepairDamaged();

  Env& env_;
  const ServerLogOptions options_;
  const std::unique_ptr<FolderLock> lock_;
  // Used by one thread until Start; then constant.
  std::optional<NodeIdentity> identity_;
  uint32_t start_count_ = 1;
  std::unique_ptr<SnapshotStore> snapshots_;
  std::optional<RecoveredLog> recovered_;
  Owner* owner_ = nullptr;
  std::unique_ptr<LogCompactor> compactor_;
  // Null: files are not reread.
  std::unique_ptr<Scrubber> scrubber_;
  std::thread background_;
  std::thread reporter_;
  std::thread reader_;
  // The job's options.
  PartitionOptions partition_options_;

  mutable Mutex mu_;
  // Durability or compaction has advanced, or the log is stopping.
  mutable CondVar progress_;
  CondVar background_work_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::unique_ptr<WriteAheadLog> log_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, PartitionState> states_ PAWL_GUARDED_BY(mu_);
  // By partition: the last index of the recovered records that are being rewritten.
  absl::btree_map<uint32_t, uint64_t> unsettled_ PAWL_GUARDED_BY(mu_);
  CondVar report_work_;
  bool reporter_stopping_ PAWL_GUARDED_BY(mu_) = false;
  // Partitions whose durable index has risen since the last report.
  absl::btree_set<uint32_t> to_report_ PAWL_GUARDED_BY(mu_);
  // The partition whose snapshot the compactor is writing.
  std::optional<uint32_t> compacting_ PAWL_GUARDED_BY(mu_);
  std::deque<Read> reads_ PAWL_GUARDED_BY(mu_);
  CondVar read_work_;
  uint64_t compaction_rounds_ PAWL_GUARDED_BY(mu_) = 0;
  // The files that are damaged now, by path; nullopt: a segment of the log.
  absl::btree_map<std::string, std::optional<SnapshotStore::Snapshot>> damaged_
      PAWL_GUARDED_BY(mu_);
  ScrubFigures scrub_figures_ PAWL_GUARDED_BY(mu_);

  // Store snapshots and read back. Two threads, because pushes may wait until a replica is read
  // back. Declared last: they use the other members.
  WorkThread stores_;
  WorkThread read_backs_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SERVER_LOG_H_
