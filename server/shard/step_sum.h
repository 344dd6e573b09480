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
#include "server/shard/row_store.h"

namespace pawl {

// Limit on the messages that a partition's early gradients keep in memory. A message may be far
// larger than its gradients, and counts once for each of them.
inline constexpr size_t kMaxKeptMessageBytes = size_t{8} << 20;

// Adds gradients in the order (rank, ordinal), whatever their order of arrival, so that the sum
// always has the same bits. It adds the complete prefix at once and keeps only what arrived early.
// Not thread-safe.
//
// An early gradient keeps its whole message in memory if the message is small, and is copied
// otherwise. A gradient whose owner keeps nothing else is never copied.
//
// With backup workers all gradients are kept until the close, which decides which ones count.
//
// The caller knows which ranks have ended the step and push nothing more, and passes that as
// `has_ended`. A rank without gradients costs nothing here, and all calls of a step together take
// O(ranks).
class StepSum {
 public:
  using HasEnded = absl::FunctionRef<bool(uint32_t rank)>;

  StepSum(uint32_t ranks, bool sum_at_close);

  // REQUIRES: the rank has not ended, the (rank, ordinal) is new.
  void Add(uint32_t rank, uint64_t ordinal, std::shared_ptr<const TableSchema> table,
           Gradient gradient, HasEnded has_ended);
  // Called when a rank ends the step, or when a step begins that some ranks may have ended before.
  void OnRanksEnded(HasEnded has_ended);

  // The largest number of rows that the step can create.
  uint64_t key_count() const { return key_count_; }
  // The bytes of keys and values of early gradients.
  size_t staged_bytes() const { return staged_bytes_; }
  // Whether the step cannot close without this rank's gradients, whatever the limits: the rank is
  // the next to be added; or, if all gradients are kept until the close, one of the first `needed`
  // ranks.
  bool MustTake(uint32_t rank, size_t needed) const;

  // Adds the rest except for the ranks that have not ended, and returns their number of gradients.
  // Calls visit(table, key, const float* sum) once for every row that has a gradient, in no
  // particular order (rows are independent), and empties the sum.
  template <typename Visit>
  uint64_t Close(HasEnded has_ended, Visit visit) {
    FoldAtClose(has_ended);
    for (const auto& entry : sums_) {
      const Sum& sum = entry.second;
      sum.rows.ForEach([&](uint64_t key, const float* row) { visit(*sum.table, key, row); });
    }
    return Clear();
  }

 private:
  friend class PartitionFormat1Loader;
  friend class PartitionLoader;
  friend class PartitionSaver;

  struct Staged {
    std::shared_ptr<const TableSchema> table;
    // owner_bytes: what counts in kept_message_bytes_; 0 if the gradient was copied or has memory
    // of its own.
    Gradient gradient;
  };
  // A rank that has pushed in this step.
  struct Rank {
    uint64_t next_ordinal = 0;  // to be added up
    std::map<uint64_t, Staged> early;
  };
  struct Sum {
    std::shared_ptr<const TableSchema> table;
    RowStore rows;
  };

  void FoldPrefix(HasEnded has_ended);
  void FoldAtClose(HasEnded has_ended);
  void Fold(const Staged& staged);
  uint64_t Clear();

  const uint32_t ranks_;
  const bool sum_at_close_;
  absl::btree_map<uint32_t, Rank> open_;  // by rank
  uint32_t first_open_rank_ = 0;
  uint64_t key_count_ = 0;
  size_t staged_bytes_ = 0;
  size_t kept_message_bytes_ = 0;
  std::map<uint32_t, Sum> sums_;  // by table id
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_STEP_SUM_H_
