// The data directory of a server: who it was, what its partitions were, and the log of what becomes of them.
#ifndef PAWL_SERVER_STORAGE_SERVER_LOG_H_
#define PAWL_SERVER_STORAGE_SERVER_LOG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/byte_view.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/daemon/node_identity.pb.h"
#include "server/shard/partition.h"
#include "server/shard/partition_snapshot.h"
#include "server/storage/log_compactor.h"
#include "server/storage/node_log.h"
#include "server/storage/recovery.h"
#include "server/storage/scrubber.h"
#include "server/storage/snapshot_store.h"
#include "server/storage/write_ahead_log.h"

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
  // How long SaveSnapshot waits until the end of the replica before is durable: it holds up whoever wants the replica.
  std::chrono::milliseconds drop_timeout{1000};
  // How long Start waits for a disk that fails or does not answer. What it has begun to write by then has to come back from
  // the system before Start returns; that it waits for it is in the log.
  std::chrono::milliseconds start_timeout{30000};
};

// A server's life with it:
//
//   auto log = ServerLog::Open(Env::Real(), options);           // locks the folder
//   if (log->identity()) partitions = log->Recover(...);        // then register as this node, in this job
//   if (the registration's job or node is another) log->StartAnew(identity of the registration);
//   log->Start({.durable = ..., .hold = ...});                  // before the first routing
//   ...
//   log->Stop();                                                // before what the events call is destroyed
//   log->JobIsOver();                                           // if that is why it stops
//
// Open to Start are for one thread, as is Stop; all others are thread-safe. No event is called with a lock held.
//
// Invariants:
// 1. What the log holds of a partition is one run of its changes, from the first or from a snapshot on: a change that
//    does not follow is not written: a snapshot of the replica with it in it is, in the background, and then reported.
// 2. Nothing is reported of a replica that was dropped, or whose snapshot is being saved, so that its successor is
//    never taken for as far as it was.
// 3. The thread that writes the log calls no event: reports have a thread of their own, which waits for no partition.
class ServerLog final : public NodeLog {
 public:
  // The next life of whoever the folder is of; that is durable when it returns. UNAVAILABLE: another process has the
  // folder. DATA_LOSS: the node file is damaged, or missing beside a log. RESOURCE_EXHAUSTED: the disk is full.
  static absl::StatusOr<std::unique_ptr<ServerLog>> Open(Env& env, ServerLogOptions options);
  ~ServerLog() override;

  // NodeLog.
  const std::optional<NodeIdentity>& identity() const override { return identity_; }
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(const PartitionOptions& options) override;
  absl::Status JobIsOver() override;
  absl::Status StartAnew(NodeIdentity identity) override;
  absl::Status Start(Events events) override;
  void Stop() override;
  // Whether that job writes a log at all.
  bool Logs() const { return identity_.has_value() && identity_->job().durability() != MEMORY; }

  // OK if changes with so many bytes are to be taken now: to be asked before a change is applied. RESOURCE_EXHAUSTED,
  // with the reason, while the disk is full or fails or too much waits.
  absl::Status CheckRoom(uint64_t bytes) const override;

  // ChangeLog. After SaveSnapshot has returned an error, the log may hold nothing of the partition until it has written a
  // snapshot of the replica as it goes on. UNAVAILABLE: soon again. A partition that was dropped comes back by SaveSnapshot:
  // if it began with its first change instead, a report of before that is just under way could be taken for its own.
  void Append(uint32_t partition, uint64_t index, uint64_t term, const ByteView& entry,
              std::shared_ptr<const void> owner) override;
  absl::Status SaveSnapshot(uint32_t partition, HeldSnapshot snapshot) override;
  void SaveAgain(uint32_t partition, uint64_t index) override;
  void Drop(uint32_t partition) override;

  WriteAheadLogFigures figures() const;
  uint64_t compaction_rounds() const;
  ScrubFigures scrub_figures() const override;

 private:
  // What the log has of a partition.
  struct PartitionState {
    // The last change in it, queued or in a snapshot; 0: nothing.
    uint64_t last = 0;
    // Ends that are queued and not durable yet.
    uint32_t drops_queued = 0;
    // Grows with every end.
    uint64_t life = 0;
    // Calls of Events::durable that are under way.
    uint32_t reporting = 0;
    // Of all snapshots that were begun.
    uint64_t saves = 0;
    bool saving = false;
    // Above `last`: the last change that the replica has and the log has not, so that a snapshot of it is wanted.
    uint64_t missing = 0;
    // What was not reported because of `saving`.
    uint64_t unreported = 0;
  };
  // A snapshot that is being saved.
  struct Save {
    uint32_t partition = 0;
    uint64_t index = 0;
    uint64_t life = 0;
    LogPosition begun;
    // It is of the replica whose changes the log has or misses, and not what another one puts in its place.
    bool of_this_replica = false;
  };
  // A moment of a partition's log.
  struct Moment {
    uint64_t life = 0;
    uint64_t saves = 0;
  };

  ServerLog(Env& env, ServerLogOptions options, std::unique_ptr<FolderLock> lock)
      : env_(env), options_(std::move(options)), lock_(std::move(lock)) {}

  absl::Status BeginLife();
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> RecoverFiles(const PartitionOptions& options);
  absl::Status DeleteFiles();
  void OnDurable(absl::Span<const DurableIndex> durable);
  void NoteReport(uint32_t partition, uint64_t index) PAWL_REQUIRES(mu_);
  void RunReports();
  // Until what was recovered and is written again is durable. An error after start_timeout.
  absl::Status AwaitSettled();
  void QueueDrop(uint32_t partition, PartitionState& state) PAWL_REQUIRES(mu_);
  // Waits for the end of the replica before, and keeps reports back until EndSave. ABORTED if the partition's log is not
  // at `at` any more.
  absl::StatusOr<Save> BeginSave(uint32_t partition, uint64_t index, const std::optional<Moment>& at = std::nullopt);
  void EndSave(const Save& save, const absl::Status& status);
  std::optional<HeldSnapshot> Hold(uint32_t partition);
  void NoteMissing(uint32_t partition, PartitionState& state, uint64_t index) PAWL_REQUIRES(mu_);
  // Writes snapshots of the partitions of which the log misses changes. How long to wait before the next try.
  std::chrono::milliseconds WriteMissing();
  absl::Status WriteMissing(uint32_t partition);
  absl::Status WriteSnapshot(const Save& save, HeldSnapshot snapshot);
  void RunBackground();
  void NoteUnreported() PAWL_REQUIRES(mu_);
  void NoteDamage(const std::string& path, const absl::Status& damage, std::optional<SnapshotStore::Snapshot> snapshot);
  // Makes damaged files superfluous: what is in memory is good. How long to wait before the next try.
  std::chrono::milliseconds RepairDamaged();

  Env& env_;
  const ServerLogOptions options_;
  const std::unique_ptr<FolderLock> lock_;
  // Until Start, of the one thread; then constant.
  std::optional<NodeIdentity> identity_;
  uint32_t life_ = 1;
  std::unique_ptr<SnapshotStore> snapshots_;
  std::optional<RecoveredLog> recovered_;
  Events events_;
  std::unique_ptr<LogCompactor> compactor_;
  // Null: files are not read again.
  std::unique_ptr<Scrubber> scrubber_;
  std::thread background_;
  std::thread reporter_;

  mutable Mutex mu_;
  // An end or something recovered has become durable.
  CondVar settled_;
  CondVar background_work_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::unique_ptr<WriteAheadLog> log_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, PartitionState> states_ PAWL_GUARDED_BY(mu_);
  // Of what was recovered and is written again: up to where.
  absl::btree_map<uint32_t, uint64_t> unsettled_ PAWL_GUARDED_BY(mu_);
  // Partitions of which something may be missing.
  std::vector<uint32_t> missing_ PAWL_GUARDED_BY(mu_);
  CondVar report_work_;
  bool reports_end_ PAWL_GUARDED_BY(mu_) = false;
  // What is to be reported, by partition.
  absl::btree_map<uint32_t, uint64_t> to_report_ PAWL_GUARDED_BY(mu_);
  // Partitions with something unreported that can be reported now.
  std::vector<uint32_t> late_ PAWL_GUARDED_BY(mu_);
  uint64_t rounds_ PAWL_GUARDED_BY(mu_) = 0;
  // Files that are damaged now, by path; null: segments of the log.
  absl::btree_map<std::string, std::optional<SnapshotStore::Snapshot>> damaged_ PAWL_GUARDED_BY(mu_);
  ScrubFigures scrub_figures_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_SERVER_LOG_H_
