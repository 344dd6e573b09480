// The gradient of some rows or blocks of one table, where it arrived.
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

// REQUIRES, of all that take one: TableSchema::CheckGradient has accepted it.
struct Gradient {
  ByteView keys;
  ByteView values;
  // Keeps the memory of both alive. Without it, a gradient that outlives the call is copied.
  std::shared_ptr<const void> owner;
  // All the memory that the owner keeps, such as a message with other gradients in it. 0: not
  // known.
  size_t owner_bytes = 0;
};

inline std::vector<uint64_t> CopyKeys(const ByteView& keys) {
  std::vector<uint64_t> copy(keys.size() / sizeof(uint64_t));
  keys.CopyTo(copy.data());
  return copy;
}

// Calls visit(size_t i, size_t begin, size_t count, const char* floats) for parts of
// the rows keys[0], keys[1], ... in order: elements [begin, begin + count) of row i.
// Rows of sparse tables come whole; blocks come in as many parts as the network cut them into.
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
