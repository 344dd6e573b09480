// The part of one table in one partition.
#ifndef PAWL_SERVER_SHARD_TABLE_PART_H_
#define PAWL_SERVER_SHARD_TABLE_PART_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/types/span.h"
#include "server/shard/gradient.h"
#include "server/shard/gradient_sum.h"
#include "server/shard/row_store.h"
#include "server/shard/shared_block.h"
#include "server/shard/table_schema.h"

namespace pawl {

// A table part at the moment of a hold; see HeldRows.
struct HeldTable {
  struct Block {
    uint64_t key;
    BlockLoan weights;
    BlockLoan state;
  };
  // The best weights: the first floats of each row.
  struct Best {
    HeldRows rows;                                       // sparse
    std::vector<std::pair<uint64_t, BlockLoan>> blocks;  // dense, ascending by key
  };

  std::shared_ptr<const TableSchema> table;
  // The number of state floats that follow a row's weights, or that a block has.
  size_t StateFloats(uint64_t key) const;
  uint64_t row_count() const { return rows.size() + blocks.size(); }
  // See TablePart::Digest.
  uint32_t Digest() const;

  HeldRows rows;              // sparse
  std::vector<Block> blocks;  // dense, ascending by key
  std::shared_ptr<const Best> best;
};

// Rows or blocks with weights and slots. A row exists from its first gradient or assignment on;
// before that it reads as its initial value. Not thread-safe.
class TablePart {
 public:
  explicit TablePart(std::shared_ptr<const TableSchema> table);

  const TableSchema& table() const { return *table_; }
  const std::shared_ptr<const TableSchema>& shared_table() const { return table_; }
  uint64_t row_count() const { return rows_.size() + blocks_.size(); }
  uint64_t parameter_bytes() const { return (rows_.float_count() + block_floats_) * sizeof(float); }
  // How many of `keys` have no row yet; repeated keys count repeatedly.
  uint64_t CountMissing(const ByteView& keys) const;

  // Updates each row with scale * its gradient; a repeated key is updated repeatedly.
  void Apply(uint64_t step, float scale, const Gradient& gradient);
  // The same for each row of a sum.
  void Apply(uint64_t step, float scale, const GradientSum& sum);
  // The learning rate that the schedule multiplies; 0: that of the spec.
  float base_rate() const { return base_rate_; }
  void set_base_rate(float rate) { base_rate_ = rate; }
  // Sets the weights of each row, and its slots as the assignment says.
  void Assign(const Assignment& assignment);

  // Writes the weights of `keys`, row by row, to `out`. REQUIRES: the table is sparse.
  void Read(const ByteView& keys, char* out) const;
  // Writes the slots of `keys`, row by row or block by block, as in PullResult.slots.
  void ReadSlots(const ByteView& keys, char* out) const;
  // Appends loans of the present weights of `keys`, block by block. REQUIRES: the table is dense.
  void Lend(const ByteView& keys, std::vector<BlockLoan>& loans) const;

  // Costs one reference per slab and block.
  HeldTable Hold() const;

  // CRC32C over (key, weights) of all rows in ascending order of the key.
  uint32_t Digest() const { return Hold().Digest(); }

  // Keeps the present weights, in place of those kept before.
  void KeepBest();
  // Restores the kept weights. Rows created since are removed and slots are reset, because training
  // has ended. Does nothing if no weights are kept.
  void RestoreBest();

 private:
  friend class PartitionLoader;
  friend class PartitionSaver;

  // Separate, because a pull lends only the weights: a push to a lent block then copies no slots.
  struct Block {
    SharedBlock weights;
    SharedBlock state;
  };
  // A block for writing.
  struct BlockForWriting {
    float* weights;
    // Slots [rule.SlotCount(width)] and, if the table counts updates, their number as uint32.
    float* state;
  };

  size_t StateFloats(size_t width) const { return table_->StateFloats(width); }
  RowStore MakeRows() const;
  // Return the row or block, and create it if it does not exist.
  float* Row(uint64_t key);
  BlockForWriting BlockOf(uint64_t key, size_t width);
  // Writes the initial weights of keys[i] to out[i]. REQUIRES: the table is sparse; at most
  // kRowsInRun keys.
  void ReadInitial(absl::Span<const uint64_t> keys, char* const* out) const;
  // Sets the weights and state of new rows. REQUIRES: the table is sparse.
  void Initialize(absl::Span<const uint64_t> keys, float* const* rows) const;
  void InitializeState(size_t width, float* state) const;
  // Finds rows, or creates them, and prefetches them. REQUIRES: the table is sparse; at most
  // kRowsInRun keys.
  void FindRun(absl::Span<const uint64_t> keys, float** rows);
  void ApplyRun(uint64_t step, float scale, absl::Span<const uint64_t> keys,
                const char* const* gradients);
  void ApplySparse(uint64_t step, float scale, const GradientSum& sum);
  void ApplyBlock(uint64_t step, float scale, uint64_t key, const char* gradient);
  void ApplyPart(uint64_t step, float scale, size_t width, size_t begin, size_t count,
                 const char* gradient, const BlockForWriting& block) const;

  std::shared_ptr<const TableSchema> table_;
  // Sparse: a row's weights [width], followed by its state.
  RowStore rows_;
  // Dense.
  absl::btree_map<uint64_t, Block> blocks_;
  uint64_t block_floats_ = 0;
  std::shared_ptr<const HeldTable::Best> best_;
  float base_rate_ = 0.0f;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TABLE_PART_H_
