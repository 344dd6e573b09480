// The gradient of some rows or blocks of one table, in the memory in which it arrived.
#ifndef PAWL_SERVER_SHARD_GRADIENT_H_
#define PAWL_SERVER_SHARD_GRADIENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/base/bytes.h"
#include "client_lib/base/limits.h"
#include "server/shard/table_schema.h"

namespace pawl {

// REQUIRES for all functions that take one: TableSchema::CheckGradient has accepted it.
struct Gradient {
  ByteView keys;
  ByteView values;
  // Owns the memory of both. Null: a gradient that must outlive the call is copied.
  std::shared_ptr<const void> owner;
  // The size of all memory that the owner keeps, such as a message with other gradients in it. 0:
  // unknown.
  size_t owner_bytes = 0;
};

inline std::vector<uint64_t> CopyKeys(const ByteView& keys) {
  std::vector<uint64_t> copy(keys.size() / sizeof(uint64_t));
  keys.CopyTo(copy.data());
  return copy;
}

// Calls visit(size_t i, size_t begin, size_t count, const char* floats) in order for parts of the
// rows keys[0], keys[1], ...: elements [begin, begin + count) of row i. A row of a sparse table is
// one part; a block has as many parts as network fragments.
template <typename Visit>
void ForEachPart(const TableSchema& table, const std::vector<uint64_t>& keys,
                 const ByteView& values, Visit visit) {
  if (!table.is_dense()) {
    const size_t width = table.MaxRowWidth();
    char scratch[kMaxRowWidth * sizeof(float)];
    size_t row = 0;
    values.ForEachRun(width * sizeof(float), scratch, [&](const char* data, size_t rows) {
      for (size_t i = 0; i < rows; ++i)
        visit(row++, size_t{0}, width, data + i * width * sizeof(float));
    });
    return;
  }
  size_t row = 0;
  size_t begin = 0;
  size_t width = keys.empty() ? 0 : table.RowWidth(keys[0]);
  char scratch[sizeof(float)];
  values.ForEachRun(sizeof(float), scratch, [&](const char* data, size_t floats) {
    while (floats > 0) {
      const size_t count = std::min(floats, width - begin);
      visit(row, begin, count, data);
      data += count * sizeof(float);
      floats -= count;
      begin += count;
      if (begin == width && ++row < keys.size()) {
        begin = 0;
        width = table.RowWidth(keys[row]);
      }
    }
  });
}

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_GRADIENT_H_
