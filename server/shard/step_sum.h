// The sum of the gradients of one step of a SYNC job, in one partition.
#ifndef PAWL_SERVER_SHARD_STEP_SUM_H_
#define PAWL_SERVER_SHARD_STEP_SUM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "server/shard/gradient.h"
#include "server/shard/gradient_sum.h"

namespace pawl {

// Limit on the messages that a partition's gradients keep in memory. A message may be far larger
// than its gradients in the partition. Consecutive gradients of one message count it once.
inline constexpr size_t kMaxKeptMessageBytes = size_t{8} << 20;
// Limit on the keys and values of gradients of the complete prefix that wait to be added.
inline constexpr size_t kMaxWaitingBytes = size_t{1} << 20;
// What an early gradient counts in addition to its keys and values: about the memory of its place,
// so that gradients without keys cannot take memory without a limit.
inline constexpr size_t kEarlyGradientBytes = 256;

// Adds gradients in the order (rank, ordinal), whatever their order of arrival, so that the sum
// always has the same bits. The complete prefix, all gradients before the first missing one, takes
// little memory, whatever the number of ranks: small gradients of sparse tables wait for the close,
// which adds all parts of a row and updates it in one pass; dense and large ones, and those beyond
// kMaxWaitingBytes, are added as they come. A gradient that arrives before an earlier one is kept.
// Not thread-safe.
//
// A gradient that is kept keeps its whole message in memory, as long as all these messages together
// fit kMaxKeptMessageBytes, and is copied otherwise. A gradient that owns its memory alone is never
// copied.
//
// With backup workers all gradients are kept until the close, which decides which ones count.
//
// The caller knows which ranks have ended the step and push nothing more, and passes that as
// `has_ended`. A rank without gradients takes no memory here. Apart from the work on gradients, all
// calls of a step together take O(ranks) time.
class StepSum {
 public:
  using HasEnded = absl::FunctionRef<bool(uint32_t rank)>;

  StepSum(uint32_t ranks, bool sum_at_close);

  // An assignment, which is applied already, and learning rates are added as a gradient without
  // keys. REQUIRES: the rank has not ended, the (rank, ordinal) is new.
  void Add(uint32_t rank, uint64_t ordinal, std::shared_ptr<const TableSchema> table,
           Gradient gradient, HasEnded has_ended);
  // Called when a rank ends the step, or when a step begins that some ranks may have ended before.
  void OnRanksEnded(HasEnded has_ended);

  // The sum of GradientSum::Squares over the tables, in ascending order of their ids. Tables with
  // the optimizer `assign` do not count: what is pushed to them is no gradient. REQUIRES: all ranks
  // have ended the step, and OnRanksEnded was called since.
  double Squares(float scale);

  // The largest number of rows that the step can create.
  uint64_t key_count() const { return key_count_; }
  // The bytes of early gradients.
  size_t staged_bytes() const { return staged_bytes_; }
  // The share of one of them.
  static size_t StagedBytes(const Gradient& gradient) {
    return gradient.keys.size() + gradient.values.size() + kEarlyGradientBytes;
  }
  // Whether the step cannot close without this gradient, whatever the limits: it is the next to be
  // added; or, if all gradients are kept until the close, its rank is one of the first `needed`.
  bool MustTake(uint32_t rank, uint64_t ordinal, size_t needed) const;

  // Adds the remaining gradients of the ranks that have ended, drops those of the others, and
  // returns how many it dropped.
  // Calls visit(const GradientSum&) for every table that has gradients, and empties the sum.
  template <typename Visit>
  uint64_t Close(HasEnded has_ended, Visit visit) {
    TakeAtClose(has_ended);
    for (const auto& [table, sum] : sums_) visit(sum);
    return Clear();
  }

 private:
  friend class PartitionLoader;
  friend class PartitionSaver;

  struct Staged {
    std::shared_ptr<const TableSchema> table;
    Gradient gradient;
  };
  // A rank that has pushed in this step.
  struct Rank {
    // The first ordinal that is not yet added.
    uint64_t next_ordinal = 0;
    std::map<uint64_t, Staged> early;
  };

  // Whether the gradient is added as soon as all before it are.
  static bool IsAddedAtOnce(const TableSchema& table, const Gradient& gradient);
  // Whether all gradients before this one are added, and it need not be kept until the close.
  bool IsNext(uint32_t rank, uint64_t ordinal) const;
  void Keep(Gradient& gradient);
  // Takes the complete prefix, or at the close what counts, from the early gradients to the sums.
  void TakePrefix(HasEnded has_ended);
  void TakeAtClose(HasEnded has_ended);
  void Take(Staged staged);
  void AddWaiting();
  void ForgetKept();
  uint64_t Clear();

  const uint32_t ranks_;
  const bool sum_at_close_;
  absl::btree_map<uint32_t, Rank> open_;  // by rank
  uint32_t first_open_rank_ = 0;
  uint64_t key_count_ = 0;
  size_t staged_bytes_ = 0;
  size_t kept_message_bytes_ = 0;
  // The message that was counted last in kept_message_bytes_.
  std::weak_ptr<const void> last_kept_;
  size_t waiting_bytes_ = 0;
  std::map<uint32_t, GradientSum> sums_;  // by table id
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_STEP_SUM_H_
