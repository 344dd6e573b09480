// A server's log on an in-memory disk. Writes take effect later, and the death of the process
// truncates them.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_LOG_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "server/replication/durable_log.h"
#include "server/shard/partition.h"
#include "tests/simulation/event_loop.h"

namespace pawl {

// The state that survives the process.
struct SimulatedDisk {
  struct StoredPartition {
    // Empty: the log starts with change 1.
    std::string snapshot;
    uint64_t snapshot_index = 0;
    // The entries after the snapshot, as serialized LogEntries.
    std::vector<std::string> entries;
    std::vector<uint64_t> terms;
  };
  std::optional<NodeIdentity> identity;
  // Processes that have used the disk.
  uint32_t starts = 0;
  // full: writes fail with an error. hangs: writes neither happen nor fail.
  bool full = false;
  bool hangs = false;
  // The partitions cannot be recovered.
  bool damaged = false;
  std::map<uint32_t, StoredPartition> partitions;
};

// Keeps the rules of ServerLog with durability LOG: written changes survive the process. Not
// thread-safe.
class SimulatedLog final : public DurableLog {
 public:
  // `incarnation` is the process's. The arguments outlive this object. forgets: the next
  // incarnation lacks the last changes of each partition, even durable ones.
  SimulatedLog(SimulatedDisk& disk, EventLoop& loop, SeededRandom& random,
               std::shared_ptr<Incarnation> incarnation, bool forgets = false);
  // Writes a prefix of the queue.
  ~SimulatedLog() override;

  const std::optional<NodeIdentity>& identity() const override { return disk_.identity; }
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions& options) override;
  absl::Status SetDamagedFilesAside() override;
  absl::Status MarkJobEnded() override { return absl::OkStatus(); }
  absl::Status Initialize(NodeIdentity identity) override;
  absl::Status Start(Owner& owner, const PartitionOptions& options) override;
  void Stop() override {}

  absl::Status CheckRoom(uint64_t) const override;
  void Append(uint32_t partition, uint64_t index, uint64_t term, ByteView entry,
              std::shared_ptr<const void> owner) override;
  void WriteQueued() override { only_queued_ = false; }
  uint64_t DurableIndex(uint32_t partition) const override;
  absl::Status AwaitDurable(uint32_t partition, uint64_t index) const override;
  absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t partition,
                                                                HeldSnapshot snapshot) override;
  void StoreSnapshotAsync(uint32_t partition, HeldSnapshot snapshot, StoreDone done) override;
  void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) override;
  absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition, uint64_t index) override;
  // Reads after a delay, sometimes longer than a caller waits.
  void ReadBackAsync(uint32_t partition, uint64_t index, ReadBackDone done) override;
  absl::Status Truncate(uint32_t partition, uint64_t index) override;
  void ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                   EntriesRead done) override;
  void Drop(uint32_t partition) override;

 private:
  enum class Kind { kEntry, kReplacement, kTruncation, kEnd };
  struct Record {
    Kind kind = Kind::kEntry;
    uint32_t partition = 0;
    uint64_t index = 0;
    // An entry or a snapshot.
    std::string bytes;
    uint64_t term = 0;
  };
  struct PartitionState {
    // The last change on the disk or in the queue.
    uint64_t last = 0;
    uint64_t durable = 0;
    // Queued records that reset or truncate the log.
    uint32_t resets_queued = 0;
    // All resets and truncations ever queued.
    uint64_t resets = 0;
    // ReadBack has read up to this index, and nothing was added since.
    std::optional<uint64_t> read_back = std::nullopt;
  };
  // A call of ReadEntries.
  struct Read {
    uint32_t partition = 0;
    uint64_t first = 0;
    uint64_t last = 0;
    size_t max_bytes = 0;
    uint64_t resets = 0;
    EntriesRead done;
    // The deadline for entries that are not written.
    MonotonicDuration deadline{};
  };

  void Enqueue(Record record);
  void EnqueueReset(Record record);
  absl::StatusOr<std::unique_ptr<Partition>> Load(uint32_t partition,
                                                  const SimulatedDisk::StoredPartition& stored,
                                                  uint64_t last,
                                                  const PartitionOptions& options) const;
  void ScheduleRead(std::shared_ptr<Read> read);
  void Write(size_t count);
  void ScheduleWrite();

  SimulatedDisk& disk_;
  EventLoop& loop_;
  SeededRandom& random_;
  const std::shared_ptr<Incarnation> incarnation_;
  const bool forgets_;
  // Entries have been appended since the last WriteQueued.
  bool only_queued_ = false;
  Owner* owner_ = nullptr;
  PartitionOptions options_;
  bool started_ = false;
  bool writing_ = false;
  std::deque<Record> queue_;
  std::map<uint32_t, PartitionState> states_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_LOG_H_
