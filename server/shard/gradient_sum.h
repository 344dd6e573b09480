// The sum of the gradients of one table, row by row.
#ifndef PAWL_SERVER_SHARD_GRADIENT_SUM_H_
#define PAWL_SERVER_SHARD_GRADIENT_SUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "server/shard/gradient.h"
#include "server/shard/row_store.h"

namespace pawl {

// The most rows that are looked up, prefetched and updated together.
inline constexpr size_t kRowsInRun = 64;

// Adds the gradients of each key in the order of their arrival, so that the sum always has the same
// bits. Gradients can wait in the memory in which they arrived until the sum is read: a reader then
// finds all parts of a row at once, and a row with one part is never copied. Not thread-safe.
class GradientSum {
 public:
  // REQUIRES for AddLater: the table is sparse.
  explicit GradientSum(std::shared_ptr<const TableSchema> table);

  const std::shared_ptr<const TableSchema>& table() const { return table_; }

  // Keeps the gradient and its owner, and adds it when the sum is read.
  void AddLater(Gradient gradient) { waiting_.push_back(std::move(gradient)); }
  // Adds the gradient at once, after those that wait.
  void AddNow(const Gradient& gradient);
  // Adds the gradients that wait, and releases their memory. Changes no sum.
  void AddWaiting() const;

  // Calls visit(run, sums) for runs of at most kRowsInRun rows that together are all rows with a
  // gradient, each once, in no particular order. The floats at sums[i] are the sum of keys[i], at
  // any alignment. A run and its sums are valid until the visit of the next run returns, so that a
  // visitor can look up the rows of one run before it updates those of the run before. The last
  // call has an empty run. `prepare` is called with the keys of each run before its sums are added
  // up.
  using Visit = absl::FunctionRef<void(absl::Span<const uint64_t> keys, const char* const* sums)>;
  using Prepare = absl::FunctionRef<void(absl::Span<const uint64_t> keys)>;
  void ForEachRun(Prepare prepare, Visit visit) const;

  // The sums of all gradients, after adding those that wait.
  HeldRows Hold() const;

  // The sum of the squares of all elements, each multiplied by `scale` before. A function of the
  // sums alone, so all replicas compute the same bits: in each row or block as SumOfSquares
  // (server/optimizer/gradient_pass.h) adds them; then the rows in ascending order of their keys,
  // in double. Adds the gradients that wait.
  double Squares(float scale) const;

 private:
  friend class PartitionLoader;

  void AddToRows(const Gradient& gradient) const;

  std::shared_ptr<const TableSchema> table_;
  // The sums without the gradients that wait.
  mutable RowStore rows_;
  mutable std::vector<Gradient> waiting_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_GRADIENT_SUM_H_
