// A server's log on a disk that is memory, written some time later and cut where the process dies.
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
#include "server/shard/partition.h"
#include "server/storage/node_log.h"
#include "tests/simulation/event_loop.h"

namespace pawl {

// What outlives the process.
struct SimulatedDisk {
  struct StoredPartition {
    // Empty: it begins with change 1.
    std::string snapshot;
    uint64_t snapshot_index = 0;
    // Those after it; the entries are serialized LogEntries.
    std::vector<std::string> entries;
    std::vector<uint64_t> terms;
  };
  std::optional<NodeIdentity> identity;
  // That have had it.
  uint32_t starts = 0;
  // Nothing is written, and that is said; nothing is written, and nothing is said.
  bool full = false;
  bool hangs = false;
  std::map<uint32_t, StoredPartition> partitions;
};

// Keeps the rules of ServerLog, with durability LOG: what is written survives the process. Not
// thread-safe.
class SimulatedLog final : public NodeLog {
 public:
  // `incarnation` is the process's. All of them outlive it.
  // forgets: the last changes of each partition are not there in the next incarnation, durable or
  // not.
  SimulatedLog(SimulatedDisk& disk, EventLoop& loop, SeededRandom& random,
               std::shared_ptr<Incarnation> incarnation, bool forgets = false);
  // Of what is queued, some is written.
  ~SimulatedLog() override;

  const std::optional<NodeIdentity>& identity() const override { return disk_.identity; }
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions& options) override;
  absl::Status JobIsOver() override { return absl::OkStatus(); }
  absl::Status StartAnew(NodeIdentity identity) override;
  absl::Status Start(Events events, const PartitionOptions& options) override;
  void Stop() override {}

  absl::Status CheckRoom(uint64_t) const override;
  void Append(uint32_t partition, uint64_t index, uint64_t term, const ByteView& entry,
              std::shared_ptr<const void> owner) override;
  uint64_t DurableIndex(uint32_t partition) const override;
  absl::Status AwaitDurable(uint32_t partition, uint64_t index) const override;
  absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t partition,
                                                                HeldSnapshot snapshot) override;
  void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) override;
  absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition, uint64_t index) override;
  // Takes time, at the end of which it is read; sometimes longer than a caller waits.
  void ReadBackThen(uint32_t partition, uint64_t index, ReadBackDone done) override;
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
    // Records in the queue that end the log as it was.
    uint32_t cuts_queued = 0;
    // All that were ever queued.
    uint64_t cuts = 0;
    // ReadBack has read up to here, and nothing has come since.
    std::optional<uint64_t> read_back = std::nullopt;
  };
  // A call of ReadEntries.
  struct Read {
    uint32_t partition = 0;
    uint64_t first = 0;
    uint64_t last = 0;
    size_t max_bytes = 0;
    uint64_t cuts = 0;
    EntriesRead done;
    // For entries that are not written.
    MonotonicDuration deadline{};
  };

  void Enqueue(Record record);
  void EnqueueCut(Record record);
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
  Events events_;
  PartitionOptions options_;
  bool started_ = false;
  bool writing_ = false;
  std::deque<Record> queue_;
  std::map<uint32_t, PartitionState> states_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_LOG_H_
