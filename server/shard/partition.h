// A partition: the unit of placement, replication and migration, and the core of Pawl.
#ifndef PAWL_SERVER_SHARD_PARTITION_H_
#define PAWL_SERVER_SHARD_PARTITION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/limits.h"
#include "server/shard/gradient.h"
#include "server/shard/push_window.h"
#include "server/shard/sender.h"
#include "server/shard/step_sum.h"
#include "server/shard/table_part.h"
#include "server/shard/table_schema.h"
#include "server/shard/term_history.h"

namespace pawl {

// The scheduler creates fewer tables than this.
inline constexpr size_t kMaxTablesOfPartition = 4096;
// The number of ranks whose clocks each pull is checked against.
inline constexpr uint32_t kCheckedRanks = 16;

// The job's settings that a partition depends on; equal in all partitions and replicas.
struct PartitionOptions {
  uint64_t job_seed = 0;
  uint32_t partitions = 0;
  uint32_t logical_workers = 1;
  Consistency consistency;
  // SYNC (Job.clip_global_norm): above 0, the last logical worker's end of a step does not close
  // it; CloseStep does.
  float clip_global_norm = 0;
  // Limit on rows; pushes beyond it are refused. 256 partitions of a server hold at most 2^34 rows.
  uint64_t max_rows = uint64_t{1} << 26;
  // SYNC: limit on StepSum::StagedBytes of the gradients that wait for earlier ones, of a lower
  // rank or of their own. Beyond it the partition accepts only the next one to be added; with
  // backup workers, all of as many ranks as close the step.
  size_t max_staged_bytes = size_t{256} << 20;
};

enum class PushOutcome {
  // New: applied, or kept until the step closes.
  kAccepted,
  // Received before; nothing changed.
  kDuplicate,
  // Dropped: the step closed without this logical worker.
  kLate,
  // SYNC: an earlier step is not applied yet; nothing changed. Push it again once
  // CanPull(sender.step).
  kEarly,
};

// In a step that closes without a rank (backup workers), its assignments and learning rates count
// as late, like its gradients.
struct PartitionCounters {
  uint64_t pushes_applied = 0;
  uint64_t pushes_late = 0;
  uint64_t keys_pushed = 0;
};

// The learning rate that a table's schedule multiplies from now on.
struct TableRate {
  uint32_t table = 0;
  float rate = 0;
};

// Checks what needs no partition. `find` returns a table's schema; null: there is none.
// INVALID_ARGUMENT: the sender may not set rates, a table is repeated or has no rate, or a rate is
// not above 0. NOT_FOUND: no such table.
absl::Status CheckLearningRates(const Sender& sender, absl::Span<const TableRate> rates,
                                absl::FunctionRef<const TableSchema*(uint32_t table)> find);

// A deterministic state machine: rows, optimizer slots, the clocks of all logical workers and the
// applied pushes of every sender. The same calls in the same order give the same bits on every
// machine. It does no I/O and knows neither time nor threads: the caller serialises all calls.
//
// Invariants:
// 1. clock(w) is the number of steps that logical worker w has ended; it only grows.
// 2. SYNC: version() is the number of applied steps. All rows are exactly the parameters after
//    these steps (and after the pushes of free-running clients). version() <= clock(w) for all w
//    except `backup_workers` of them. With clip_global_norm clock(w) <= version() + 1: no logical
//    worker ends a step before the previous one has closed in all partitions.
// 3. A push id changes the state at most once.
// 4. A call that returns an error has changed nothing.
// 5. Every call that changes the state raises log_index() by one; a call that changes nothing (an
//    error, a duplicate) leaves it. The changes are thus numbered, and a replica that applies them
//    in this order is identical.
// 6. min_clock() only grows.
class Partition {
 public:
  Partition(uint32_t index, const PartitionOptions& options);

  uint32_t index() const { return index_; }
  // The index of the last change; 0 before the first.
  uint64_t log_index() const { return log_index_; }
  // The terms in which the changes were written. Not part of the state: identical replicas may know
  // different runs.
  const TermHistory& terms() const { return terms_; }
  // Starts `term` for the next changes. DATA_LOSS: the last changes have a later term.
  absl::Status SetTerm(uint64_t term);
  // Forgets the terms, which mean nothing in another job.
  void ForgetTerms() { terms_ = TermHistory(); }
  uint64_t clock(uint32_t rank) const { return workers_[rank].clock; }
  // The number of steps that all logical workers have ended, except released ones.
  uint64_t min_clock() const { return min_clock_; }
  uint64_t version() const { return version_; }
  // The number of steps that are applied for all logical workers that the mode requires.
  uint64_t CutStep() const { return options_.consistency.mode() == SYNC ? version_ : min_clock_; }
  const PartitionOptions& options() const { return options_; }
  const PartitionCounters& counters() const { return counters_; }
  uint64_t row_count() const;
  uint64_t parameter_bytes() const;

  // Creates the table unless it exists. ALREADY_EXISTS: it exists with another spec.
  // RESOURCE_EXHAUSTED: there are too many tables.
  absl::Status CreateTable(std::shared_ptr<const TableSchema> table);

  // Accepts a gradient under its push id (sender, ordinal). FAILED_PRECONDITION: not the sender's
  // step, or the sender is released. ABORTED: its incarnation is superseded. OUT_OF_RANGE: no such
  // rank or client, or the ordinal is too far ahead. RESOURCE_EXHAUSTED: too many rows.
  // UNAVAILABLE: earlier gradients are missing and max_staged_bytes are in use; the sender
  // must retry. REQUIRES: the table exists and CheckGradient has accepted the gradient.
  absl::StatusOr<PushOutcome> Push(const Sender& sender, uint64_t ordinal, uint32_t table,
                                   Gradient gradient);
  // Like Push, for a gradient that the primary has accepted: memory limits, which may differ in
  // this process, do not apply, and all earlier steps are applied.
  absl::StatusOr<PushOutcome> PushReplicated(const Sender& sender, uint64_t ordinal, uint32_t table,
                                             Gradient gradient);

  // Applies an assignment at once, under a push id like a gradient's. FAILED_PRECONDITION also for
  // a logical worker after the job's first step has begun (PushEffect in proto/parameter.proto).
  // Other errors: as for Push, except UNAVAILABLE. REQUIRES: the table exists and CheckAssignment
  // has accepted the assignment.
  absl::StatusOr<PushOutcome> Assign(const Sender& sender, uint64_t ordinal, uint32_t table,
                                     const Assignment& assignment);
  // Like Assign, for an assignment that the primary has accepted.
  absl::StatusOr<PushOutcome> AssignReplicated(const Sender& sender, uint64_t ordinal,
                                               uint32_t table, const Assignment& assignment);

  // Replaces the learning rates of tables under a push id like a gradient's; see SET_LEARNING_RATES
  // in proto/parameter.proto. Errors: as for Push, except RESOURCE_EXHAUSTED and UNAVAILABLE.
  // REQUIRES: the tables exist, and CheckLearningRates has accepted the rates.
  absl::StatusOr<PushOutcome> SetLearningRates(const Sender& sender, uint64_t ordinal,
                                               absl::Span<const TableRate> rates);

  // Ends `sender.step` of a logical worker: its clock becomes step + 1. In SYNC the last logical
  // worker's end closes the step, unless clip_global_norm is set. Repeating an end changes nothing.
  // `segments` is how many segments the worker has pushed here in this step; without it, the
  // contiguous ones count as all. FAILED_PRECONDITION: not its step; with clip_global_norm, a step
  // after the one that is open here; an ordinal below `segments` is missing; in SYNC, an ordinal
  // from `segments` on is present (in the other modes a recomputed step may differ, and the
  // predecessor's pushes are in the parameters already); or the worker is released. ABORTED:
  // superseded. INVALID_ARGUMENT: the sender is a client.
  absl::Status EndStep(const Sender& sender, std::optional<uint64_t> segments);
  absl::Status CheckEndStep(const Sender& sender, std::optional<uint64_t> segments) const;
  // Whether EndStep would visit all gradients of a SYNC step: to close it, or, with
  // clip_global_norm, to sum their squares. Does not check for errors.
  bool WouldCompleteStep(const Sender& sender) const;
  // The same for `ends` ends of the step by different logical workers that have not ended it.
  bool WouldCompleteStep(size_t ends) const;

  // SYNC with clip_global_norm: closes `sender.step`, which all logical workers have ended. Its
  // gradients, except those of tables with the optimizer `assign`, are multiplied by `scale` and
  // applied. Closing a closed step changes nothing. FAILED_PRECONDITION: without clip_global_norm;
  // a logical worker has not ended the step; or it is the last closed one and known to have closed
  // with another scale. INVALID_ARGUMENT: the sender is a client, or the scale is not above 0 and
  // at most 1. Other errors: as for EndStep.
  absl::Status CloseStep(const Sender& sender, float scale);
  absl::Status CheckCloseStep(const Sender& sender, float scale) const;
  // Whether all logical workers have ended the step. Once true, it stays true.
  bool HaveAllEnded(uint64_t step) const {
    return version_ > step || (version_ == step && ended_ == workers_.size());
  }
  // Whether the sender may ask for StepSquares(sender.step), perhaps before HaveAllEnded.
  // FAILED_PRECONDITION: without clip_global_norm, or the sender has not ended the step. Other
  // errors: as for CloseStep.
  absl::Status CheckStepSquares(const Sender& sender) const;
  // The sum of the squares of a step's gradients, summed over the logical workers and divided by
  // their number, before the scale of CloseStep is applied (StepSum::Squares).
  // Tables with the optimizer `assign` do not count. The open step's and the last closed step's sum
  // are known, because after a crash a step may be closed in some partitions only. For older steps
  // it is 0. All logical workers have ended a later step, and thus confirmed the close of the older
  // one in all partitions. Closing it again changes nothing, whatever the scale. REQUIRES:
  // CheckStepSquares has accepted the step, and HaveAllEnded.
  double StepSquares(uint64_t step) const;

  // Supersedes all earlier incarnations of a logical worker and returns its clock. Changes nothing
  // if the incarnation is already the current one. A released rank counts again from now on, as if
  // its clock were at least min_clock(): it catches up without holding the others back.
  // OUT_OF_RANGE: no such rank. ABORTED: superseded.
  absl::StatusOr<uint64_t> TakeOver(uint32_t rank, uint64_t incarnation);

  // BOUNDED, ASYNC: ends that incarnation of the logical worker. Until a later one takes over, no
  // call waits for its clock. Changes nothing if a later one has taken over or the rank is
  // released. OUT_OF_RANGE: no such rank. FAILED_PRECONDITION: SYNC, where no step closes without
  // the rank.
  absl::Status Release(uint32_t rank, uint64_t incarnation);

  // Whether a pull of a logical worker for `step` can be answered now. Once true, it stays true.
  bool CanPull(uint64_t step) const;
  // Consistency.read_my_writes: whether that logical worker's own earlier steps have ended here.
  // True without it. Once true, it stays true. REQUIRES: there is such a rank.
  bool HasOwnSteps(uint32_t rank, uint64_t step) const {
    return !options_.consistency.read_my_writes() || workers_[rank].clock >= step;
  }
  // Pull writes the weights of a sparse table's `keys` to `out`; Lend lends the blocks of a dense
  // table; both in the order of the keys. REQUIRES: the table exists and CheckKeys has accepted the
  // keys.
  void Pull(uint32_t table, const ByteView& keys, char* out) const;
  void Lend(uint32_t table, const ByteView& keys, std::vector<BlockLoan>& loans) const;
  // Writes the slots of the rows or blocks to `out`; see TablePart. REQUIRES: as above.
  void PullSlots(uint32_t table, const ByteView& keys, char* out) const;
  // How many steps a pull of logical worker `rank` at `step` is ahead of the slowest worker; 0 if
  // it is not the worker's step. Crashes if the clocks of kCheckedRanks logical workers, different
  // ones in each pull, break the mode's bound. REQUIRES: CanPull(step).
  uint64_t Staleness(uint32_t rank, uint64_t step) const;
  // BOUNDED: whether a pull for `step`, which CanPull allows, lacks gradients of more than
  // `staleness` steps ago. This happens while ranks that returned after a release still catch up.
  bool ExceedsBound(uint64_t step) const;

  // Keeps the present weights as the best ones. `step` is the number of steps behind them and grows
  // through restores too. Changes nothing unless `step` is later than that of the kept weights.
  void KeepBest(uint64_t step);
  // Whether weights are kept, and a logical worker has ended a step since they were last restored.
  // If not, restoring them again would only undo what clients have pushed and assigned since.
  bool ShouldRestoreBest() const { return best_step_ != 0 && restored_at_ == 0; }
  // Restores the kept weights; see TablePart. Changes nothing if none are kept.
  void RestoreBest();

  // SYNC, for a restored partition: sets the clock of every logical worker to the partition's
  // version, so that all start at the same step in all partitions. A worker that pushes nothing
  // here may have ended that step already, and ends it again. A worker that is behind, as backup
  // workers may be, also starts there; its pushes for closed steps would be dropped anyway. In the
  // other modes nothing happens. FAILED_PRECONDITION: the partition has gradients of the step.
  absl::Status ReopenStep();

  const TablePart* FindTable(uint32_t table) const;
  // Sorted by id.
  std::vector<std::shared_ptr<const TableSchema>> tables() const;

 private:
  friend class PartitionLoader;
  friend class PartitionSaver;
  // Lets a test break an invariant.
  friend class PartitionSaboteur;

  // A server may have 65,536 partitions with 16,384 workers each, so this is kept small.
  struct Worker {
    // The clock as min_clock() counts it.
    uint64_t Counted() const { return std::max<uint64_t>(clock, counts_from); }
    // Whether its clock holds back no other worker.
    bool IsExempt() const { return released || clock < counts_from; }

    uint64_t incarnation = 0;
    uint64_t clock = 0;
    // The lowest value that its clock counts as: min_clock() when it returned after a release.
    uint64_t counts_from : 63 = 0;
    uint64_t released : 1 = 0;
    // The ordinals of step `clock`; null: none.
    std::unique_ptr<PushWindow> window;
  };
  static_assert(sizeof(Worker) <= 32);
  struct PendingRate {
    uint64_t ordinal = 0;
    float rate = 0;
  };
  struct Client {
    uint64_t incarnation = 0;
    PushWindow window;
  };

  // For logical workers. OUT_OF_RANGE, or ABORTED if that incarnation has ended.
  absl::Status CheckIncarnation(uint32_t rank, uint64_t incarnation) const;
  absl::Status CheckSender(const Sender& sender) const;
  // The number of logical workers that close a SYNC step.
  size_t NeededWorkers() const { return workers_.size() - options_.consistency.backup_workers(); }
  bool HasEnded(uint32_t rank) const { return workers_[rank].clock > version_; }
  const PushWindow& WindowOf(const Worker& worker) const;
  // How the sender's window answers the ordinal, or the error if the sender cannot push it now.
  absl::StatusOr<PushWindow::Answer> LookUp(const Sender& sender, uint64_t ordinal) const;
  // UNAVAILABLE (see Push) for a new gradient.
  absl::Status CheckStaging(const Sender& sender, uint64_t ordinal, const Gradient& gradient) const;
  // RESOURCE_EXHAUSTED for a new push.
  absl::Status CheckRows(uint32_t table, const ByteView& keys) const;
  // Whether the sender, whose push is new, may assign.
  absl::Status CheckMayAssign(const Sender& sender) const;
  // Consistency.staleness_aware: the factor of a gradient of that step of a logical worker. A
  // function of the clocks, so that replicas and a replay of the log compute the same.
  float StalenessFactor(uint64_t step) const;
  // Records a push that LookUp has found new.
  void TakeOrdinal(const Sender& sender, uint64_t ordinal);
  PushOutcome Accept(const Sender& sender, uint64_t ordinal, uint32_t table, Gradient gradient);
  PushOutcome AcceptAssigned(const Sender& sender, uint64_t ordinal, uint32_t table,
                             const Assignment& assignment);
  // Keeps the place of what is applied already or at the close, because the sum takes the gradients
  // of a rank in the order of their ordinals.
  void SkipInSum(const Sender& sender, uint64_t ordinal, const TablePart& part);
  // Checks the preconditions of closing a step and of asking for its squares.
  absl::Status CheckMayClose(const Sender& sender) const;
  bool ClipsGlobalNorm() const { return options_.clip_global_norm > 0; }
  // Closes all steps that enough ranks have ended.
  void CloseSteps();
  // Applies the gradients of step `version_`, multiplied by `clip_scale`, and begins the next step.
  void CloseOpenStep(float clip_scale);
  // Adds `worker`, which is not released, to the counted clocks; or removes it.
  void Count(const Worker& worker);
  void Uncount(const Worker& worker);
  // Counts all clocks again after other changes of the workers.
  void CountAll();
  void UpdateMinClock();
  // The lowest clock of those that are not released.
  std::optional<uint64_t> LowestClock() const;

  const uint32_t index_;
  const PartitionOptions options_;

  absl::btree_map<uint32_t, TablePart> tables_;  // by id
  std::vector<Worker> workers_;                  // by rank
  // How many unreleased ranks count as each clock, so that ending a step looks at no other rank.
  absl::btree_map<uint64_t, uint32_t> clocks_;
  // The real clocks of returned ranks that have not caught up. Mostly empty.
  absl::btree_map<uint64_t, uint32_t> exempt_clocks_;
  size_t ended_ = 0;  // the number of ranks with HasEnded
  absl::btree_map<uint32_t, Client> clients_;
  uint64_t min_clock_ = 0;
  uint64_t version_ = 0;
  StepSum step_sum_;  // SYNC: of step `version_`
  // With clip_global_norm: StepSquares of step `version_`, once all ranks have ended it, and of the
  // step before; otherwise 0.
  double open_squares_ = 0;
  double closed_squares_ = 0;
  // The scale with which CloseStep closed the step before. Not part of a snapshot, after which it
  // is unknown: it only serves to detect logical workers that disagree.
  std::optional<float> closed_scale_;
  // SYNC: learning rates that take effect when step `version_` closes, by table.
  absl::btree_map<uint32_t, PendingRate> pending_rates_;
  uint64_t best_step_ = 0;
  uint64_t log_index_ = 0;
  TermHistory terms_;
  // The log index of the last RestoreBest; 0 if a logical worker has ended a step since.
  uint64_t restored_at_ = 0;
  PartitionCounters counters_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PARTITION_H_
