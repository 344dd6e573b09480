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

// Of messages that a partition's early gradients keep in memory; they may be far larger than the
// gradients, and count once for each of them here.
inline constexpr size_t kMaxKeptMessageBytes = size_t{8} << 20;

// Adds gradients in the order (rank, ordinal), in whatever order they arrive, so
// that the sum has the same bits every time. The prefix that is complete is added
// up at once; only what arrived early is kept. Not thread-safe.
//
// An early gradient keeps its whole message in memory if that is small enough, and is copied
// otherwise; one whose owner keeps nothing but it is kept as it is.
//
// With backup workers it is not known before the close whose gradients count, so all are kept until
// then.
//
// The owner knows which ranks have ended the step, so that no more gradients of theirs come, and is
// asked. A rank without gradients costs nothing here, and a step costs O(ranks) in all its calls
// together.
class StepSum {
 public:
  using HasEnded = absl::FunctionRef<bool(uint32_t rank)>;

  StepSum(uint32_t ranks, bool sum_at_close);

  // REQUIRES: the rank has not ended, the (rank, ordinal) is new.
  void Add(uint32_t rank, uint64_t ordinal, std::shared_ptr<const TableSchema> table,
           Gradient gradient, HasEnded has_ended);
  // A rank has ended the step, or the step has begun and some may have ended it before.
  void RanksHaveEnded(HasEnded has_ended);

  // Rows that the step can create at most, for the limit on rows.
  uint64_t key_count() const { return key_count_; }
  // Bytes of the keys and values of gradients that are kept because they arrived early.
  size_t staged_bytes() const { return staged_bytes_; }
  // Whether the step can close only if this rank's gradients are taken, however much is kept: the
  // rank that is next to be added up; or, where all are kept until the close, one of the first
  // `needed` that came.
  bool MustTake(uint32_t rank, size_t needed) const;

  // Adds up what is left, without the ranks that have not ended (whose number of gradients it
  // returns), calls visit(table, key, const float* sum) for every row that has a gradient, each
  // once (rows do not depend on each other, so their order does not matter), and empties the sum.
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
    // owner_bytes: those that count in kept_message_bytes_; 0 if it was copied, or has memory of
    // its own.
    Gradient gradient;
  };
  // One that has pushed in this step.
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
