// One partition: the unit of placement, replication and migration, and the core of Pawl.
#ifndef PAWL_SERVER_SHARD_PARTITION_H_
#define PAWL_SERVER_SHARD_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/gradient.h"
#include "server/shard/push_window.h"
#include "server/shard/step_sum.h"
#include "server/shard/table_part.h"

namespace pawl {

inline constexpr size_t kMaxTables = 4096;
// Free-running clients that push at a time; the scheduler numbers them below this.
inline constexpr uint32_t kMaxClients = 1024;

// What of the job matters to a partition; the same in all of them.
struct PartitionOptions {
  uint64_t job_seed = 0;
  uint32_t partitions = 0;
  uint32_t logical_workers = 1;
  Consistency consistency;
  // 256 partitions of a server then hold 2^34 rows at most. A push beyond it is refused.
  uint64_t max_rows = uint64_t{1} << 26;
  // SYNC: gradients kept because those of a lower rank are still to come. Beyond it only
  // the ranks are taken without which the step cannot close.
  size_t max_staged_bytes = size_t{256} << 20;
};

// Who pushes, in which life.
struct Sender {
  enum class Kind { kLogicalWorker, kClient };
  Kind kind = Kind::kClient;
  uint32_t number = 0;  // rank or client
  uint64_t incarnation = 0;
  uint64_t step = 0;  // of a logical worker
};

enum class PushOutcome {
  // Taken: applied, or kept until the step closes.
  kAccepted,
  // Taken before; nothing changed.
  kDuplicate,
  // The step closed without this logical worker; dropped.
  kLate,
};

struct PartitionCounters {
  uint64_t pushes_applied = 0;
  uint64_t pushes_deduplicated = 0;
  uint64_t pushes_late = 0;
  uint64_t keys_pushed = 0;
};

// What the earlier segments of the same request bring to the partition, when a later one is checked.
struct PushesAhead {
  uint64_t keys = 0;
  size_t value_bytes = 0;
};

// A deterministic state machine: rows, optimizer slots, the clocks of all logical
// workers and the applied pushes of every sender. The same calls in the same order give the
// same bits on every machine. It does no I/O and knows no time and no threads: the
// caller serialises all calls.
//
// Invariants:
// 1. clock(w) is the number of steps that logical worker w has ended; it only grows.
// 2. SYNC: version() is the number of steps applied; all rows are exactly the
//    parameters after these steps (and after what free-running clients pushed).
//    version() <= clock(w) for all w but `backup_workers` of them.
// 3. A push id changes the state at most once.
// 4. A call that returns an error has changed nothing.
class Partition {
 public:
  Partition(uint32_t index, const PartitionOptions& options);

  uint32_t index() const { return index_; }
  uint64_t clock(uint32_t rank) const { return workers_[rank].clock; }
  uint64_t min_clock() const { return min_clock_; }
  uint64_t version() const { return version_; }
  const PartitionCounters& counters() const { return counters_; }
  uint64_t row_count() const;
  uint64_t parameter_bytes() const;

  // REQUIRES: no other table has this id.
  void CreateTable(std::shared_ptr<const TableSchema> table);

  // Takes a gradient under its push id (sender, ordinal).
  // FAILED_PRECONDITION: not the sender's step. ABORTED: its incarnation is superseded.
  // OUT_OF_RANGE: no such rank or client, or an ordinal too far ahead. RESOURCE_EXHAUSTED: too many rows.
  // UNAVAILABLE: early, and max_staged_bytes are kept; to be sent again.
  // REQUIRES: the table exists, CheckGradient has accepted the gradient; in SYNC CanPull(sender.step) of a
  // logical worker: all steps before are applied.
  absl::StatusOr<PushOutcome> Push(const Sender& sender, uint64_t ordinal, uint32_t table, Gradient gradient);
  // The error that Push would return after the pushes `ahead`, without the push.
  absl::Status CheckPush(const Sender& sender, uint64_t ordinal, uint32_t table, const Gradient& gradient,
                         const PushesAhead& ahead = {}) const;

  // Ends `sender.step` of a logical worker: its clock becomes step + 1. In SYNC the
  // step closes with the last logical worker. Nothing happens if it ended before.
  // FAILED_PRECONDITION: not its step, or an ordinal of the step is missing. ABORTED: superseded.
  absl::Status EndStep(const Sender& sender);
  absl::Status CheckEndStep(const Sender& sender) const;

  // Whether a logical worker's pull for `step` may be answered now. Once true, it stays true.
  bool CanPull(uint64_t step) const;
  // Writes the weights of `keys` to `out`. REQUIRES: the table exists and CheckKeys has accepted the keys.
  void Pull(uint32_t table, const ByteView& keys, char* out) const;
  // How many steps a pull of logical worker `rank` at `step` is ahead of the slowest one; 0 for a step that
  // is not the worker's. Crashes if the mode's bound is broken. REQUIRES: CanPull(step).
  uint64_t Staleness(uint32_t rank, uint64_t step) const;

  void KeepBest(uint64_t evaluation);
  void RestoreBest();

  const TablePart* FindTable(uint32_t table) const;

 private:
  struct Worker {
    uint64_t incarnation = 0;
    uint64_t clock = 0;
    // The ordinals of step `clock`.
    PushWindow window;
  };
  struct Client {
    uint64_t incarnation = 0;
    PushWindow window;
  };

  TablePart& MutableTable(uint32_t table);
  absl::Status CheckSender(const Sender& sender) const;
  // Logical workers that close a SYNC step.
  size_t NeededWorkers() const { return workers_.size() - options_.consistency.backup_workers(); }
  void CloseSteps();
  void UpdateMinClock();

  const uint32_t index_;
  const PartitionOptions options_;

  absl::btree_map<uint32_t, TablePart> tables_;  // by id
  std::vector<Worker> workers_;                 // by rank
  absl::btree_map<uint32_t, Client> clients_;
  uint64_t min_clock_ = 0;
  uint64_t version_ = 0;
  StepSum step_sum_;  // SYNC: of step `version_`
  uint64_t best_evaluation_ = 0;
  PartitionCounters counters_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PARTITION_H_
