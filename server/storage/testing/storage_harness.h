// A server's storage with toy partitions, for tests. It opens the storage, appends, takes
// snapshots, and knows what was reported durable.
#ifndef PAWL_SERVER_STORAGE_TESTING_STORAGE_HARNESS_H_
#define PAWL_SERVER_STORAGE_TESTING_STORAGE_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "server/storage/recovery.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/write_ahead_log.h"

namespace pawl {

inline constexpr uint64_t kHarnessJobId = 77;

// Stands for a partition: the number of records it has taken, and a checksum over all of them in
// order.
struct ToyPartition {
  uint64_t index = 0;
  uint32_t crc = 0;

  void Apply(absl::string_view payload);
  bool operator==(const ToyPartition&) const = default;
};

// One incarnation of a server. For one thread, apart from the log's thread.
class StorageHarness {
 public:
  // `options.data_folder` is "/data".
  explicit StorageHarness(Env& env, WriteAheadLogOptions options = QuickOptions());
  ~StorageHarness();

  // Retries and marks come after 1 ms.
  static WriteAheadLogOptions QuickOptions();

  // Recovers and starts the log.
  absl::Status Open();

  WriteAheadLog& log() { return *log_; }
  SnapshotStore& snapshots() { return *snapshots_; }
  // The result of Recover, without what the log has taken over.
  const RecoveredLog& recovered() const { return recovered_; }
  // The state in memory: what was recovered, and what was appended since.
  const std::map<uint32_t, ToyPartition>& partitions() const { return partitions_; }
  ToyPartition& partition(uint32_t partition) { return partitions_[partition]; }

  // Applies a record and queues it. False, and nothing changes, if the log has no room.
  bool Append(uint32_t partition, std::string payload);
  // True once the partition's state is durable; false after `timeout`, or as soon as the log fails
  // if `give_up`.
  bool WaitDurable(uint32_t partition, bool give_up = false,
                   std::chrono::milliseconds timeout = std::chrono::seconds(20));
  // Queues the drop and waits like WaitDurable. The partition is gone at once.
  bool Drop(uint32_t partition, bool give_up = false);
  // Writes a snapshot of the state and releases the log.
  absl::Status Snapshot(uint32_t partition);

  // Resets the partition to `state`: stores a snapshot of it, and queues the reset of the log.
  absl::Status Replace(uint32_t partition, const ToyPartition& state);
  // The two halves of Replace.
  absl::StatusOr<std::unique_ptr<SnapshotWriter>> Store(uint32_t partition,
                                                        const ToyPartition& state);
  void QueueReplace(uint32_t partition, const ToyPartition& state, SnapshotWriter& stored);
  // Truncates the log to what the partition was at state.index.
  void Truncate(uint32_t partition, const ToyPartition& state);

  // What the log has reported, or a snapshot holds; 0 while a reset is queued.
  uint64_t durable(uint32_t partition) const;

 private:
  class Sink;
  void OnDurable(absl::Span<const DurableRecord> durable);
  // Counts a reset that is about to be queued; returns its number.
  uint64_t NoteReset(uint32_t partition);
  static std::string SnapshotOf(const ToyPartition& state);

  Env& env_;
  const WriteAheadLogOptions options_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<SnapshotStore> snapshots_;
  RecoveredLog recovered_;
  std::map<uint32_t, ToyPartition> partitions_;

  mutable Mutex mu_;
  CondVar changed_;
  std::map<uint32_t, uint64_t> durable_ PAWL_GUARDED_BY(mu_);
  // By the log alone.
  std::map<uint32_t, uint64_t> reported_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, uint64_t> resets_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, uint64_t> resets_queued_ PAWL_GUARDED_BY(mu_);

  std::unique_ptr<WriteAheadLog> log_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_TESTING_STORAGE_HARNESS_H_
