// One partition: the unit of placement, replication and migration, and the core of Pawl.
#ifndef PAWL_SERVER_SHARD_PARTITION_H_
#define PAWL_SERVER_SHARD_PARTITION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/limits.h"
#include "server/shard/gradient.h"
#include "server/shard/push_window.h"
#include "server/shard/step_sum.h"
#include "server/shard/table_part.h"
#include "server/shard/term_history.h"

namespace pawl {

// The scheduler gives a job fewer.
inline constexpr size_t kMaxTablesOfPartition = 4096;
// Whose clocks a pull is checked against.
inline constexpr uint32_t kCheckedRanks = 16;

// What of the job matters to a partition; the same in all of them and in all replicas.
struct PartitionOptions {
  uint64_t job_seed = 0;
  uint32_t partitions = 0;
  uint32_t logical_workers = 1;
  Consistency consistency;
  // 256 partitions of a server then hold 2^34 rows at most. A push beyond it is refused.
  uint64_t max_rows = uint64_t{1} << 26;
  // SYNC: keys and values of gradients kept because those of a lower rank are still to come. Beyond
  // it only the ranks are taken without which the step cannot close.
  size_t max_staged_bytes = size_t{256} << 20;
};

// Who pushes, in which incarnation.
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
  uint64_t pushes_late = 0;
  uint64_t keys_pushed = 0;
};

// What the earlier segments of the same request bring to the partition, when a later one is
// checked.
struct PushesAhead {
  uint64_t keys = 0;
  size_t bytes = 0;  // of keys and values
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
// 5. Every call that changes the state raises log_index() by one; what changes nothing (an error, a
//    duplicate, what has happened already) leaves it. So the changes are numbered, and a replica
//    that applies them in this order is the same.
// 6. min_clock() only grows.
class Partition {
 public:
  Partition(uint32_t index, const PartitionOptions& options);

  uint32_t index() const { return index_; }
  // Of the last change; 0 before the first.
  uint64_t log_index() const { return log_index_; }
  // Which term's primary wrote which of the changes. No part of the state: replicas that are the
  // same may know different runs.
  const TermHistory& terms() const { return terms_; }
  // The next changes are of `term`. DATA_LOSS: the last ones are of a later one.
  absl::Status SetTerm(uint64_t term);
  // The terms of another job's primaries say nothing in this one.
  void ForgetTerms() { terms_ = TermHistory(); }
  uint64_t clock(uint32_t rank) const { return workers_[rank].clock; }
  // The steps that all logical workers have ended, but those that are released.
  uint64_t min_clock() const { return min_clock_; }
  uint64_t version() const { return version_; }
  // All steps below this one are in the parameters, of every logical worker that is needed for it.
  uint64_t CutStep() const { return options_.consistency.mode() == SYNC ? version_ : min_clock_; }
  const PartitionOptions& options() const { return options_; }
  const PartitionCounters& counters() const { return counters_; }
  uint64_t row_count() const;
  uint64_t parameter_bytes() const;

  // Nothing happens if the table exists. ALREADY_EXISTS: with another spec. RESOURCE_EXHAUSTED: too
  // many tables.
  absl::Status CreateTable(std::shared_ptr<const TableSchema> table);

  // Takes a gradient under its push id (sender, ordinal).
  // FAILED_PRECONDITION: not the sender's step, or it is released. ABORTED: its incarnation is
  // superseded. OUT_OF_RANGE: no such rank or client, or an ordinal too far ahead.
  // RESOURCE_EXHAUSTED: too many rows. UNAVAILABLE: early, and max_staged_bytes are kept; to be
  // sent again. REQUIRES: the table exists, CheckGradient has accepted the gradient; in SYNC
  // CanPull(sender.step) of a logical worker: all steps before are applied.
  absl::StatusOr<PushOutcome> Push(const Sender& sender, uint64_t ordinal, uint32_t table,
                                   Gradient gradient);
  // The same where the primary has taken it: limits of memory, which this process may have others
  // of, do not count.
  absl::StatusOr<PushOutcome> Take(const Sender& sender, uint64_t ordinal, uint32_t table,
                                   Gradient gradient);
  // The error that Push would return after the pushes `ahead`, without the push. `value_bytes`: of
  // its values as floats.
  absl::Status CheckPush(const Sender& sender, uint64_t ordinal, uint32_t table,
                         const ByteView& keys, size_t value_bytes,
                         const PushesAhead& ahead = {}) const;

  // Ends `sender.step` of a logical worker: its clock becomes step + 1. In SYNC the
  // step closes with the last logical worker. Nothing happens if it ended before.
  // `segments`: how many it has pushed here in this step; without it, whatever has come without a
  // gap is taken for all. FAILED_PRECONDITION: not its step; one of the ordinals below `segments`
  // is missing; in SYNC also, one from `segments` on is there (in the other modes a recomputed step
  // may differ, and what the predecessor pushed is in the parameters already); or it is released.
  // ABORTED: superseded. INVALID_ARGUMENT: the sender is a client.
  absl::Status EndStep(const Sender& sender, std::optional<uint64_t> segments);
  absl::Status CheckEndStep(const Sender& sender, std::optional<uint64_t> segments) const;
  // Whether EndStep would close a step of SYNC, and apply all of its gradients; without looking for
  // errors.
  bool EndClosesStep(const Sender& sender) const;
  // The same of so many ends of the step, of different logical workers that have not ended it.
  bool EndsCloseStep(size_t ends) const;

  // Supersedes all earlier incarnations of a logical worker and returns its clock. Nothing happens
  // if the incarnation is the present one. A released rank counts again from now on, as if its
  // clock were min_clock() at least: it catches up without holding anybody back further than where
  // they are. OUT_OF_RANGE: no such rank. ABORTED: superseded.
  absl::StatusOr<uint64_t> TakeOver(uint32_t rank, uint64_t incarnation);

  // BOUNDED, ASYNC: that incarnation of the logical worker is over; until a later one takes over,
  // nobody waits for its clock. Nothing happens if a later one has, or if it is released.
  // OUT_OF_RANGE: no such rank. FAILED_PRECONDITION: in SYNC, where no step closes without it.
  absl::Status Release(uint32_t rank, uint64_t incarnation);

  // Whether a logical worker's pull for `step` may be answered now. Once true, it stays true.
  bool CanPull(uint64_t step) const;
  // Writes the weights of a sparse table's `keys` to `out`, or lends those of a dense one's, in the
  // order of the keys. REQUIRES: the table exists and CheckKeys has accepted the keys.
  void Pull(uint32_t table, const ByteView& keys, char* out) const;
  void Lend(uint32_t table, const ByteView& keys, std::vector<BlockLoan>& loans) const;
  // How many steps a pull of logical worker `rank` at `step` is ahead of the slowest one; 0 for a
  // step that is not the worker's. Crashes if the mode's bound is broken, by the clocks of
  // kCheckedRanks logical workers themselves: each pull looks at other ones. REQUIRES:
  // CanPull(step).
  uint64_t Staleness(uint32_t rank, uint64_t step) const;
  // BOUNDED: whether a pull for `step`, which CanPull allows, lacks gradients of more than
  // `staleness` steps ago: of ranks that came back after they had been released, and have not
  // caught up with the others yet.
  bool ExceedsBound(uint64_t step) const;

  // Keeps the present weights aside as the best ones. `step`: the steps behind them, which grow
  // through restores too. Nothing happens unless it is a later one than that of those kept.
  void KeepBest(uint64_t step);
  // Brings them back; see TablePart. Nothing happens if none are kept, or if nothing has changed
  // since it was done.
  void RestoreBest();

  // SYNC, of a restored partition that was saved when it had just reached its version: the logical
  // workers that had ended that step already, because they push nothing here, are to end it again,
  // together with the other partitions, in which they may not have ended it. Those that are behind,
  // which backup workers may be, each elsewhere in each partition, begin with it too: what they
  // would push for closed steps is dropped anyway. In the other modes nothing happens.
  // FAILED_PRECONDITION: gradients of the step are there.
  absl::Status ReopenStep();

  const TablePart* FindTable(uint32_t table) const;
  // Ascending by id.
  std::vector<std::shared_ptr<const TableSchema>> tables() const;

 private:
  friend class PartitionFormat1Loader;
  friend class PartitionLoader;
  friend class PartitionSaver;
  // Of a test: breaks what the partition keeps.
  friend class PartitionSaboteur;

  // There may be 16,384 of them in each of 65,536 partitions: kept small.
  struct Worker {
    // What its clock counts as for min_clock().
    uint64_t Counted() const { return std::max<uint64_t>(clock, counts_from); }
    // Others are not held to its clock.
    bool IsExempt() const { return released || clock < counts_from; }

    uint64_t incarnation = 0;
    uint64_t clock = 0;
    // As what the clock counts at least: min_clock() when it came back from being released.
    uint64_t counts_from : 63 = 0;
    uint64_t released : 1 = 0;
    // The ordinals of step `clock`; null: none.
    std::unique_ptr<PushWindow> window;
  };
  static_assert(sizeof(Worker) <= 32);
  struct Client {
    uint64_t incarnation = 0;
    PushWindow window;
  };

  TablePart& MutableTable(uint32_t table);
  // Of a logical worker: OUT_OF_RANGE, or ABORTED if that incarnation is over.
  absl::Status CheckIncarnation(uint32_t rank, uint64_t incarnation) const;
  absl::Status CheckSender(const Sender& sender) const;
  // Logical workers that close a SYNC step.
  size_t NeededWorkers() const { return workers_.size() - options_.consistency.backup_workers(); }
  bool HasEnded(uint32_t rank) const { return workers_[rank].clock > version_; }
  const PushWindow& WindowOf(const Worker& worker) const;
  // What it would be to its sender's window; the error if it is not the sender's to push now.
  absl::StatusOr<PushWindow::Answer> LookUp(const Sender& sender, uint64_t ordinal) const;
  // RESOURCE_EXHAUSTED or UNAVAILABLE, see Push, for a push that is new.
  absl::Status CheckRoom(const Sender& sender, uint32_t table, const ByteView& keys,
                         size_t value_bytes, const PushesAhead& ahead) const;
  void CloseSteps();
  // `worker`, which is not released, counts from now on as it is; not any more.
  void Count(const Worker& worker);
  void Uncount(const Worker& worker);
  // All of them, after the workers have changed in another way.
  void CountAll();
  void UpdateMinClock();
  // Of those that are not released.
  std::optional<uint64_t> LowestClock() const;

  const uint32_t index_;
  const PartitionOptions options_;

  absl::btree_map<uint32_t, TablePart> tables_;  // by id
  std::vector<Worker> workers_;                  // by rank
  // How many of those that are not released count as at which clock, so that the end of a step
  // looks at no other rank.
  absl::btree_map<uint64_t, uint32_t> clocks_;
  // The same of those that came back and have not caught up, by their real clocks. Mostly empty.
  absl::btree_map<uint64_t, uint32_t> exempt_clocks_;
  size_t ended_ = 0;  // those for which HasEnded
  absl::btree_map<uint32_t, Client> clients_;
  uint64_t min_clock_ = 0;
  uint64_t version_ = 0;
  StepSum step_sum_;  // SYNC: of step `version_`
  uint64_t best_step_ = 0;
  uint64_t log_index_ = 0;
  TermHistory terms_;
  uint64_t restored_at_ = 0;  // the log index of the last RestoreBest
  PartitionCounters counters_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PARTITION_H_
