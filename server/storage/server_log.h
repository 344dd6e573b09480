// The data directory of a server: who it was, what its partitions were, and the log of what becomes
// of them.
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
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/node_log.h"
#include "server/storage/recovery.h"
#include "server/storage/scrubber.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/log_compactor.h"
#include "server/storage/wal/log_history.h"
#include "server/storage/wal/write_ahead_log.h"

namespace pawl {

struct ServerLogOptions {
  // Made if it is missing.
  std::string data_folder;
  // See LogCompactor. What a start has to replay; beside it lie two snapshots of each partition.
  uint64_t log_bytes = uint64_t{1} << 30;
  // The folder and the durability are set by ServerLog.
  WriteAheadLogOptions log;
  // How often it is looked whether snapshots are due.
  std::chrono::milliseconds compaction_interval{200};
  // After a failed round of snapshots.
  std::chrono::milliseconds compaction_retry_interval{5000};
  // How fast files at rest are read again (Scrubber); 0: never.
  uint64_t scrub_bytes_per_s = uint64_t{8} << 20;
  std::chrono::milliseconds scrub_pause{1000};
  // How long Start, AwaitDurable, ReadBack and ReadEntries wait for a disk that fails or does not
  // answer. What it has begun to write by then has to come back from the system before Start
  // returns; that it waits for it is in the log.
  std::chrono::milliseconds disk_timeout{30000};
  // How long the files that ReadBack has read stay for Truncate.
  std::chrono::milliseconds kept_after_read_back{600000};
};

// A server's incarnation with it:
//
//   auto log = ServerLog::Open(Env::Real(), options);           // locks the folder
//   if (log->identity()) partitions = log->Recover(...);        // then register as this node, in
//   this job if (the registration's job or node is another) log->StartAnew(identity of the
//   registration); log->Start({.durable = ..., .hold = ...}, options);         // before the first
//   routing
//   ...
//   log->Stop();                                                // before what the events call is
//   destroyed log->JobIsOver();                                           // if that is why it
//   stops
//
// Open to Start are for one thread, as is Stop; all others are thread-safe. No event is called with
// a lock held.
//
// Invariants:
// 1. What the log holds of a partition is one run of its changes, from the first or from a snapshot
// on.
// 2. While a cut of a partition's log is queued, nothing of the partition counts as durable, so
// that the replica is never
//    taken for as far as the one before was; and no snapshot of it is committed.
// 3. The thread that writes the log calls no event: reports have a thread of their own, which waits
// for no partition.
class ServerLog final : public NodeLog {
 public:
  // The next incarnation of whoever the folder is of; that is durable when it returns. UNAVAILABLE:
  // another process has the folder. DATA_LOSS: the node file is damaged, or missing beside a log.
  // RESOURCE_EXHAUSTED: the disk is full.
  static absl::StatusOr<std::unique_ptr<ServerLog>> Open(Env& env, ServerLogOptions options);
  ~ServerLog() override;

  // NodeLog.
  const std::optional<NodeIdentity>& identity() const override { return identity_; }
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions& options) override;
  absl::Status JobIsOver() override;
  absl::Status StartAnew(NodeIdentity identity) override;
  absl::Status Start(Events events, const PartitionOptions& options) override;
  void Stop() override;
  // Whether that job writes a log at all.
  bool Logs() const { return identity_.has_value() && identity_->job().durability() != MEMORY; }

  // OK if changes with so many bytes are to be taken now: to be asked before a change is applied.
  // RESOURCE_EXHAUSTED, with the reason, while the disk is full or fails or too much waits.
  absl::Status CheckRoom(uint64_t bytes) const override;

  // ChangeLog.
  uint64_t DurableIndex(uint32_t partition) const override;
  absl::Status AwaitDurable(uint32_t partition, uint64_t index) const override;
  void Append(uint32_t partition, uint64_t index, uint64_t term, const ByteView& entry,
              std::shared_ptr<const void> owner) override;
  absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t partition,
                                                                HeldSnapshot snapshot) override;
  void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) override;
  absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition, uint64_t index) override;
  absl::Status Truncate(uint32_t partition, uint64_t index) override;
  void ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                   EntriesRead done) override;
  void Drop(uint32_t partition) override;

  WriteAheadLogFigures figures() const;
  uint64_t compaction_rounds() const;
  ScrubFigures scrub_figures() const override;

 private:
  // What the log has of a partition.
  struct PartitionState {
    // The last change in it, queued or in a snapshot; 0: nothing.
    uint64_t last = 0;
    uint64_t durable = 0;
    // Cuts that are queued and not durable yet.
    uint32_t cuts_queued = 0;
    // All that were ever queued.
    uint64_t cuts = 0;
    // After ReadBack, until a Truncate is queued or cannot come: the compactor leaves the partition
    // alone until then, so that its files go on to reach back.
    std::optional<std::chrono::steady_clock::time_point> kept_until;
  };
  // A call of ReadEntries.
  struct Read {
    WantedEntries wanted;
    EntriesRead done;
    // PartitionState::cuts when it came.
    uint64_t cuts = 0;
    // Entries that are queued are waited for until then.
    std::chrono::steady_clock::time_point deadline;
  };

  ServerLog(Env& env, ServerLogOptions options, std::unique_ptr<FolderLock> lock)
      : env_(env), options_(std::move(options)), lock_(std::move(lock)) {}

  absl::Status CountStart();
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> RecoverFiles(
      const PartitionOptions& options);
  absl::Status DeleteFiles();
  void OnDurable(absl::Span<const DurableRecord> durable);
  void RunReports();
  // Until what was recovered and is written again is durable. An error after disk_timeout.
  absl::Status AwaitSettled();
  // From here on the partition's log ends at `index`.
  void NoteCut(uint32_t partition, uint64_t index) PAWL_REQUIRES(mu_);
  uint64_t DurableIndexLocked(uint32_t partition) const PAWL_REQUIRES(mu_);
  // For the compactor, which writes one snapshot after the other.
  std::optional<HeldSnapshot> Hold(uint32_t partition);
  void EndCompaction() PAWL_REQUIRES(mu_);
  LogHistory History() const PAWL_REQUIRES(mu_);
  // Those that can be answered now, from the log or, without one, with an error.
  std::vector<Read> TakeReads() PAWL_REQUIRES(mu_);
  // Of the threads that Stop ends before it deletes the log.
  WriteAheadLog& StartedLog() PAWL_EXCLUDES(mu_);
  void RunReads();
  void RunBackground();
  void NoteDamage(const std::string& path, const absl::Status& damage,
                  std::optional<SnapshotStore::Snapshot> snapshot);
  // Makes damaged files superfluous: what is in memory is good. How long to wait before the next
  // try.
  std::chrono::milliseconds RepairDamaged();

  Env& env_;
  const ServerLogOptions options_;
  const std::unique_ptr<FolderLock> lock_;
  // Until Start, of the one thread; then constant.
  std::optional<NodeIdentity> identity_;
  uint32_t start_count_ = 1;
  std::unique_ptr<SnapshotStore> snapshots_;
  std::optional<RecoveredLog> recovered_;
  Events events_;
  std::unique_ptr<LogCompactor> compactor_;
  // Null: files are not read again.
  std::unique_ptr<Scrubber> scrubber_;
  std::thread background_;
  std::thread reporter_;
  std::thread reader_;
  // Of the job.
  PartitionOptions partition_options_;

  mutable Mutex mu_;
  // Something has become durable.
  mutable CondVar settled_;
  CondVar background_work_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::unique_ptr<WriteAheadLog> log_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, PartitionState> states_ PAWL_GUARDED_BY(mu_);
  // Of what was recovered and is written again: up to where.
  absl::btree_map<uint32_t, uint64_t> unsettled_ PAWL_GUARDED_BY(mu_);
  CondVar report_work_;
  bool reports_end_ PAWL_GUARDED_BY(mu_) = false;
  // Partitions of which more is durable than was reported.
  absl::btree_set<uint32_t> to_report_ PAWL_GUARDED_BY(mu_);
  // What the compactor has begun to write.
  std::optional<uint32_t> compacting_ PAWL_GUARDED_BY(mu_);
  std::deque<Read> reads_ PAWL_GUARDED_BY(mu_);
  CondVar read_work_;
  uint64_t rounds_ PAWL_GUARDED_BY(mu_) = 0;
  // Files that are damaged now, by path; null: segments of the log.
  absl::btree_map<std::string, std::optional<SnapshotStore::Snapshot>> damaged_
      PAWL_GUARDED_BY(mu_);
  ScrubFigures scrub_figures_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SERVER_LOG_H_
