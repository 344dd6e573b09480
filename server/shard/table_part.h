// The part of one table that lies in one partition.
#ifndef PAWL_SERVER_SHARD_TABLE_PART_H_
#define PAWL_SERVER_SHARD_TABLE_PART_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/shard/gradient.h"
#include "server/shard/row_store.h"
#include "server/shard/table_schema.h"

namespace pawl {

// Rows (or blocks) with weights and slots. A row exists from its first gradient on;
// before, it reads as its initial value. Not thread-safe.
class TablePart {
 public:
  explicit TablePart(std::shared_ptr<const TableSchema> table);

  const TableSchema& table() const { return *table_; }
  const std::shared_ptr<const TableSchema>& shared_table() const { return table_; }
  uint64_t row_count() const { return rows_.size(); }
  uint64_t parameter_bytes() const { return rows_.float_count() * sizeof(float); }
  // How many of `keys` have no row yet (a key given twice counts twice).
  uint64_t CountMissing(const ByteView& keys) const;

  // Updates each row with scale * its gradient; a key that comes twice is updated twice.
  void Apply(uint64_t step, float scale, const Gradient& gradient);
  // The same for one whole row whose gradient lies in memory.
  void ApplyRow(uint64_t step, float scale, uint64_t key, const float* gradient);

  // Writes the weights of `keys`, one row after the other, to `out`.
  void Read(const ByteView& keys, char* out) const;

  // CRC32C over (key, weights) of all rows in ascending order of the key.
  uint32_t Digest() const;

  // Keeps the present weights aside, in place of those kept before.
  void KeepBest();
  // Brings the kept weights back. Rows created since are gone, slots begin anew:
  // training is over when this is called. Nothing happens if nothing was kept.
  void RestoreBest();

 private:
  struct Best {
    std::vector<uint64_t> keys;
    std::vector<float> weights;
  };

  size_t RowFloats(size_t width) const;
  // The row, created if need be.
  float* Row(uint64_t key, size_t width);
  void ApplyPart(uint64_t step, float scale, size_t width, size_t begin, size_t count, const void* gradient,
                 float* row) const;
  void CountUpdate(size_t width, float* row) const;

  std::shared_ptr<const TableSchema> table_;
  // A row: weights [width], slots [rule.SlotCount(width)], and, if the table counts updates, their number as uint32.
  RowStore rows_;
  std::unique_ptr<Best> best_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TABLE_PART_H_
