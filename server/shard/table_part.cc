#include "server/shard/table_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

// Index entries and rows are fetched this many keys before they are used.
constexpr size_t kPrefetchDistance = 16;

size_t StoreRowFloats(const TableSchema& table) {
  if (table.is_dense()) return 0;
  const size_t width = table.MaxRowWidth();
  return width + table.rule().SlotCount(width) + (table.counts_updates() ? 1 : 0);
}

void PrefetchRow(const float* row, size_t floats) {
  const char* end = reinterpret_cast<const char*>(row + floats);
  for (const char* line = reinterpret_cast<const char*>(row); line < end; line += 64) __builtin_prefetch(line);
}

}  // namespace

TablePart::TablePart(std::shared_ptr<const TableSchema> table) : table_(std::move(table)), rows_(StoreRowFloats(*table_)) {}

size_t TablePart::RowFloats(size_t width) const {
  return width + table_->rule().SlotCount(width) + (table_->counts_updates() ? 1 : 0);
}

uint64_t TablePart::CountMissing(const ByteView& keys) const {
  uint64_t missing = 0;
  for (const uint64_t key : CopyKeys(keys)) missing += !rows_.contains(key);
  return missing;
}

float* TablePart::Row(uint64_t key, size_t width) {
  const size_t floats = RowFloats(width);
  bool inserted;
  float* row = rows_.FindOrInsert(key, floats, inserted);
  if (inserted) {
    table_->initializer().Fill(key, 0, width, row);
    table_->rule().InitializeSlots(width, row + width);
    if (table_->counts_updates()) std::memset(&row[floats - 1], 0, sizeof(float));
  }
  return row;
}

void TablePart::ApplyPart(uint64_t step, float scale, size_t width, size_t begin, size_t count, const void* gradient,
                          float* row) const {
  UpdatePosition position;
  position.step = step;
  if (table_->counts_updates()) {
    uint32_t updates;
    std::memcpy(&updates, &row[RowFloats(width) - 1], sizeof(updates));
    position.prior_updates = updates;
  }
  table_->rule().Apply(position, scale, gradient, width, begin, count, row, row + width);
}

void TablePart::CountUpdate(size_t width, float* row) const {
  if (!table_->counts_updates()) return;
  uint32_t updates;
  float* where = &row[RowFloats(width) - 1];
  std::memcpy(&updates, where, sizeof(updates));
  // At the end of its range Adam's corrections have long been 1.
  if (updates < UINT32_MAX) ++updates;
  std::memcpy(where, &updates, sizeof(updates));
}

void TablePart::Apply(uint64_t step, float scale, const Gradient& gradient) {
  const std::vector<uint64_t> keys = CopyKeys(gradient.keys);
  if (!table_->is_dense()) {
    const size_t width = table_->MaxRowWidth();
    const size_t floats = RowFloats(width);
    std::vector<float*> rows(keys.size());
    for (size_t i = 0; i < std::min(keys.size(), kPrefetchDistance); ++i) rows_.Prefetch(keys[i]);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i + kPrefetchDistance < keys.size()) rows_.Prefetch(keys[i + kPrefetchDistance]);
      rows[i] = Row(keys[i], width);
      PrefetchRow(rows[i], floats);
    }
    ForEachPart(*table_, keys, gradient.values, [&](size_t i, size_t begin, size_t count, const char* data) {
      ApplyPart(step, scale, width, begin, count, data, rows[i]);
      CountUpdate(width, rows[i]);
    });
    return;
  }
  // A rule that looks at the whole block needs it in one piece.
  std::vector<float> whole(table_->rule().IsElementwise() ? 0 : table_->MaxRowWidth());
  ForEachPart(*table_, keys, gradient.values, [&](size_t i, size_t begin, size_t count, const char* data) {
    const size_t width = table_->RowWidth(keys[i]);
    const bool last = begin + count == width;
    if (!whole.empty()) {
      std::memcpy(whole.data() + begin, data, count * sizeof(float));
      if (last) ApplyRow(step, scale, keys[i], whole.data());
      return;
    }
    float* block = Row(keys[i], width);
    ApplyPart(step, scale, width, begin, count, data, block);
    if (last) CountUpdate(width, block);
  });
}

void TablePart::ApplyRow(uint64_t step, float scale, uint64_t key, const float* gradient) {
  const size_t width = table_->RowWidth(key);
  float* row = Row(key, width);
  ApplyPart(step, scale, width, 0, width, gradient, row);
  CountUpdate(width, row);
}

void TablePart::Read(const ByteView& key_bytes, char* out) const {
  const std::vector<uint64_t> keys = CopyKeys(key_bytes);
  std::vector<const float*> rows(keys.size());
  for (size_t i = 0; i < std::min(keys.size(), kPrefetchDistance); ++i) rows_.Prefetch(keys[i]);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kPrefetchDistance < keys.size()) rows_.Prefetch(keys[i + kPrefetchDistance]);
    rows[i] = rows_.Find(keys[i]);
    if (rows[i] != nullptr && !table_->is_dense()) PrefetchRow(rows[i], table_->MaxRowWidth());
  }
  std::vector<float> initial;
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t width = table_->RowWidth(keys[i]);
    const float* row = rows[i];
    if (row == nullptr) {
      initial.resize(width);
      table_->initializer().Fill(keys[i], 0, width, initial.data());
      row = initial.data();
    }
    // `out` follows other bytes of a message and need not be aligned.
    std::memcpy(out, row, width * sizeof(float));
    out += width * sizeof(float);
  }
}

uint32_t TablePart::Digest() const {
  uint32_t crc = 0;
  for (const uint64_t key : rows_.SortedKeys()) {
    crc = Crc32c(crc, &key, sizeof(key));
    crc = Crc32c(crc, rows_.Find(key), table_->RowWidth(key) * sizeof(float));
  }
  return crc;
}

void TablePart::KeepBest() {
  best_ = std::make_unique<Best>();
  best_->keys = rows_.SortedKeys();
  for (const uint64_t key : best_->keys) {
    const float* row = rows_.Find(key);
    best_->weights.insert(best_->weights.end(), row, row + table_->RowWidth(key));
  }
}

void TablePart::RestoreBest() {
  if (best_ == nullptr) return;
  rows_ = RowStore(StoreRowFloats(*table_));
  const float* weights = best_->weights.data();
  for (const uint64_t key : best_->keys) {
    const size_t width = table_->RowWidth(key);
    std::copy(weights, weights + width, Row(key, width));
    weights += width;
  }
}

}  // namespace pawl
