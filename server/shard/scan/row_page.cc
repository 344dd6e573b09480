#include "server/shard/scan/row_page.h"

#include <algorithm>
#include <utility>

namespace pawl {
namespace {

using KeyAndRow = std::pair<uint64_t, const float*>;

// Removes all but the `count` rows of the smallest keys. REQUIRES: there are more.
void KeepSmallest(std::vector<KeyAndRow>& rows, size_t count) {
  std::nth_element(rows.begin(), rows.begin() + count, rows.end());
  rows.resize(count);
}

}  // namespace

RowPage ReadPage(const HeldTable& held, uint64_t first_key, const RowPageLimits& limits) {
  const TableSchema& table = *held.table;
  const size_t width = table.MaxRowWidth();
  const size_t slot_floats = limits.with_slots ? table.StateFloats(width) : 0;
  const size_t row_bytes = sizeof(uint64_t) + (width + slot_floats) * sizeof(float);
  const size_t count = std::max<size_t>(1, std::min(limits.rows, limits.bytes / row_bytes));

  // Keeps up to twice as many rows, so that selecting the smallest costs constant time a row.
  std::vector<KeyAndRow> rows;
  bool done = true;
  uint64_t last_wanted = UINT64_MAX;
  held.rows.ForEach([&](uint64_t key, const float* row) {
    if (key < first_key) return;
    if (key > last_wanted) {
      done = false;
      return;
    }
    rows.emplace_back(key, row);
    if (rows.size() < 2 * count) return;
    KeepSmallest(rows, count);
    last_wanted = std::max_element(rows.begin(), rows.end())->first;
    done = false;
  });
  if (rows.size() > count) {
    KeepSmallest(rows, count);
    done = false;
  }
  std::sort(rows.begin(), rows.end());

  RowPage page;
  page.keys.reserve(rows.size());
  page.values.resize(rows.size() * width);
  page.slots.resize(rows.size() * slot_floats);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [key, row] = rows[i];
    page.keys.push_back(key);
    std::copy(row, row + width, page.values.begin() + i * width);
    if (slot_floats > 0) table.CopySlots(width, row + width, page.slots.data() + i * slot_floats);
  }
  page.done = done;
  if (!done) page.next_key = page.keys.back() + 1;
  return page;
}

}  // namespace pawl
