// The part of one table that lies in one partition.
#ifndef PAWL_SERVER_SHARD_TABLE_PART_H_
#define PAWL_SERVER_SHARD_TABLE_PART_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "server/shard/gradient.h"
#include "server/shard/row_store.h"
#include "server/shard/shared_block.h"
#include "server/shard/table_schema.h"

namespace pawl {

// The part of a table as it was when it was held: see HeldRows.
struct HeldTable {
  struct Block {
    uint64_t key;
    BlockLoan weights;
    BlockLoan state;
  };
  // The best weights: of a row, the first floats.
  struct Best {
    HeldRows rows;                                       // sparse
    std::vector<std::pair<uint64_t, BlockLoan>> blocks;  // dense, ascending by key
  };

  std::shared_ptr<const TableSchema> table;
  // Floats of a row's state, behind its weights, or of a block's.
  size_t StateFloats(uint64_t key) const;
  uint64_t row_count() const { return rows.size() + blocks.size(); }
  // See TablePart::Digest.
  uint32_t Digest() const;

  HeldRows rows;              // sparse
  std::vector<Block> blocks;  // dense, ascending by key
  std::shared_ptr<const Best> best;
};

// Rows (or blocks) with weights and slots. A row exists from its first gradient on;
// before, it reads as its initial value. Not thread-safe.
class TablePart {
 public:
  explicit TablePart(std::shared_ptr<const TableSchema> table);

  const TableSchema& table() const { return *table_; }
  const std::shared_ptr<const TableSchema>& shared_table() const { return table_; }
  uint64_t row_count() const { return rows_.size() + blocks_.size(); }
  uint64_t parameter_bytes() const { return (rows_.float_count() + block_floats_) * sizeof(float); }
  // How many of `keys` have no row yet (a key given twice counts twice).
  uint64_t CountMissing(const ByteView& keys) const;

  // Updates each row with scale * its gradient; a key that comes twice is updated twice.
  void Apply(uint64_t step, float scale, const Gradient& gradient);
  // The same for one whole row whose gradient lies in memory.
  void ApplyRow(uint64_t step, float scale, uint64_t key, const float* gradient);

  // Writes the weights of `keys`, one row after the other, to `out`. REQUIRES: the table is sparse.
  void Read(const ByteView& keys, char* out) const;
  // Appends the weights of `keys`, one block after the other, as they are now. REQUIRES: the table
  // is dense.
  void Lend(const ByteView& keys, std::vector<BlockLoan>& loans) const;

  // Costs a reference for each slab and block.
  HeldTable Hold() const;

  // CRC32C over (key, weights) of all rows in ascending order of the key.
  uint32_t Digest() const { return Hold().Digest(); }

  // Keeps the present weights aside, in place of those kept before.
  void KeepBest();
  // Brings the kept weights back. Rows created since are gone, slots begin anew:
  // training is over when this is called. Nothing happens if nothing was kept.
  void RestoreBest();

 private:
  friend class PartitionFormat1Loader;
  friend class PartitionLoader;
  friend class PartitionSaver;

  // Apart, since a pull lends the weights alone: a push to a block that is lent then copies no
  // slots.
  struct Block {
    SharedBlock weights;
    SharedBlock state;
  };
  // A row or block, to be written.
  struct RowMemory {
    float* weights;
    // Slots [rule.SlotCount(width)] and, if the table counts updates, their number as uint32.
    float* state;
  };

  size_t StateFloats(size_t width) const;
  RowStore MakeRows() const;
  // The row or block, created if need be.
  RowMemory Row(uint64_t key, size_t width);
  void ApplyPart(uint64_t step, float scale, size_t width, size_t begin, size_t count,
                 const void* gradient, const RowMemory& row) const;
  void CountUpdate(size_t width, float* state) const;

  std::shared_ptr<const TableSchema> table_;
  // Sparse: a row's weights [width], and its state after them.
  RowStore rows_;
  // Dense.
  absl::btree_map<uint64_t, Block> blocks_;
  uint64_t block_floats_ = 0;
  std::shared_ptr<const HeldTable::Best> best_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TABLE_PART_H_
