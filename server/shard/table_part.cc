#include "server/shard/table_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

// How many keys ahead to prefetch index entries and rows.
constexpr size_t kPrefetchDistance = 16;

void PrefetchRow(const float* row, size_t floats) {
  const char* end = reinterpret_cast<const char*>(row + floats);
  for (const char* line = reinterpret_cast<const char*>(row); line < end; line += 64)
    __builtin_prefetch(line);
}

size_t StateFloats(const TableSchema& table, size_t width) {
  return table.rule().SlotCount(width) + (table.counts_updates() ? 1 : 0);
}

}  // namespace

TablePart::TablePart(std::shared_ptr<const TableSchema> table)
    : table_(std::move(table)), rows_(MakeRows()) {}

RowStore TablePart::MakeRows() const {
  return RowStore(table_->is_dense() ? 0
                                     : table_->MaxRowWidth() + StateFloats(table_->MaxRowWidth()));
}

size_t TablePart::StateFloats(size_t width) const { return pawl::StateFloats(*table_, width); }

uint64_t TablePart::CountMissing(const ByteView& keys) const {
  uint64_t missing = 0;
  for (const uint64_t key : CopyKeys(keys))
    missing += !(table_->is_dense() ? blocks_.contains(key) : rows_.contains(key));
  return missing;
}

TablePart::RowMemory TablePart::Row(uint64_t key, size_t width) {
  const size_t state_floats = StateFloats(width);
  bool inserted;
  RowMemory row;
  if (table_->is_dense()) {
    auto found = blocks_.find(key);
    inserted = found == blocks_.end();
    if (inserted) {
      found = blocks_.emplace(key, Block{SharedBlock(width), SharedBlock(state_floats)}).first;
      block_floats_ += width + state_floats;
    }
    row = {found->second.weights.Mutable(), found->second.state.Mutable()};
  } else {
    row.weights = rows_.FindOrInsert(key, width + state_floats, inserted);
    row.state = row.weights + width;
  }
  if (inserted) {
    table_->initializer().Fill(key, 0, width, row.weights);
    table_->rule().InitializeSlots(width, row.state);
    if (table_->counts_updates()) std::memset(&row.state[state_floats - 1], 0, sizeof(float));
  }
  return row;
}

void TablePart::ApplyPart(uint64_t step, float scale, size_t width, size_t begin, size_t count,
                          const void* gradient, const RowMemory& row) const {
  UpdatePosition position;
  position.step = step;
  if (table_->counts_updates()) {
    uint32_t updates;
    std::memcpy(&updates, &row.state[StateFloats(width) - 1], sizeof(updates));
    position.prior_updates = updates;
  }
  table_->rule().Apply(position, scale, gradient, width, begin, count, row.weights, row.state);
}

void TablePart::CountUpdate(size_t width, float* state) const {
  if (!table_->counts_updates()) return;
  uint32_t updates;
  float* where = &state[StateFloats(width) - 1];
  std::memcpy(&updates, where, sizeof(updates));
  // Adam's corrections reach 1 long before the counter saturates.
  if (updates < UINT32_MAX) ++updates;
  std::memcpy(where, &updates, sizeof(updates));
}

void TablePart::Apply(uint64_t step, float scale, const Gradient& gradient) {
  const std::vector<uint64_t> keys = CopyKeys(gradient.keys);
  if (!table_->is_dense()) {
    const size_t width = table_->MaxRowWidth();
    const size_t floats = width + StateFloats(width);
    std::vector<RowMemory> rows(keys.size());
    for (size_t i = 0; i < std::min(keys.size(), kPrefetchDistance); ++i) rows_.Prefetch(keys[i]);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i + kPrefetchDistance < keys.size()) rows_.Prefetch(keys[i + kPrefetchDistance]);
      rows[i] = Row(keys[i], width);
      PrefetchRow(rows[i].weights, floats);
    }
    ForEachPart(*table_, keys, gradient.values,
                [&](size_t i, size_t begin, size_t count, const char* data) {
                  ApplyPart(step, scale, width, begin, count, data, rows[i]);
                  CountUpdate(width, rows[i].state);
                });
    return;
  }
  // A rule that is not elementwise needs the whole block contiguously.
  std::vector<float> whole(table_->rule().IsElementwise() ? 0 : table_->MaxRowWidth());
  ForEachPart(*table_, keys, gradient.values,
              [&](size_t i, size_t begin, size_t count, const char* data) {
                const size_t width = table_->RowWidth(keys[i]);
                const bool last = begin + count == width;
                if (!whole.empty()) {
                  std::memcpy(whole.data() + begin, data, count * sizeof(float));
                  if (last) ApplyRow(step, scale, keys[i], whole.data());
                  return;
                }
                const RowMemory block = Row(keys[i], width);
                ApplyPart(step, scale, width, begin, count, data, block);
                if (last) CountUpdate(width, block.state);
              });
}

void TablePart::ApplyRow(uint64_t step, float scale, uint64_t key, const float* gradient) {
  const size_t width = table_->RowWidth(key);
  const RowMemory row = Row(key, width);
  ApplyPart(step, scale, width, 0, width, gradient, row);
  CountUpdate(width, row.state);
}

void TablePart::Read(const ByteView& keys, char* out) const {
  const std::vector<uint64_t> wanted = CopyKeys(keys);
  const size_t width = table_->MaxRowWidth();
  std::vector<const float*> rows(wanted.size());
  for (size_t i = 0; i < std::min(wanted.size(), kPrefetchDistance); ++i) rows_.Prefetch(wanted[i]);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i + kPrefetchDistance < wanted.size()) rows_.Prefetch(wanted[i + kPrefetchDistance]);
    rows[i] = rows_.Find(wanted[i]);
    if (rows[i] != nullptr) PrefetchRow(rows[i], width);
  }
  std::vector<float> initial(width);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float* row = rows[i];
    if (row == nullptr) {
      table_->initializer().Fill(wanted[i], 0, width, initial.data());
      row = initial.data();
    }
    // `out` follows other bytes of a message and may be unaligned.
    std::memcpy(out, row, width * sizeof(float));
    out += width * sizeof(float);
  }
}

void TablePart::Lend(const ByteView& keys, std::vector<BlockLoan>& loans) const {
  for (const uint64_t key : CopyKeys(keys)) {
    if (const auto found = blocks_.find(key); found != blocks_.end()) {
      loans.push_back(found->second.weights.Lend());
      continue;
    }
    const size_t width = table_->RowWidth(key);
    SharedBlock initial(width);
    table_->initializer().Fill(key, 0, width, initial.Mutable());
    loans.push_back(initial.Lend());
  }
}

HeldTable TablePart::Hold() const {
  HeldTable held;
  held.table = table_;
  held.rows = rows_.Hold();
  held.blocks.reserve(blocks_.size());
  for (const auto& [key, block] : blocks_)
    held.blocks.push_back({key, block.weights.Lend(), block.state.Lend()});
  held.best = best_;
  return held;
}

size_t HeldTable::StateFloats(uint64_t key) const {
  return pawl::StateFloats(*table, table->RowWidth(key));
}

uint32_t HeldTable::Digest() const {
  std::vector<std::pair<uint64_t, const float*>> sorted;
  sorted.reserve(row_count());
  rows.ForEach([&](uint64_t key, const float* row) { sorted.emplace_back(key, row); });
  std::sort(sorted.begin(), sorted.end());
  for (const Block& block : blocks) sorted.emplace_back(block.key, block.weights.data());
  uint32_t crc = 0;
  for (const auto& [key, weights] : sorted) {
    crc = Crc32c(crc, &key, sizeof(key));
    crc = Crc32c(crc, weights, table->RowWidth(key) * sizeof(float));
  }
  return crc;
}

void TablePart::KeepBest() {
  auto best = std::make_shared<HeldTable::Best>();
  best->rows = rows_.Hold();
  for (const auto& [key, block] : blocks_) best->blocks.emplace_back(key, block.weights.Lend());
  best_ = std::move(best);
}

void TablePart::RestoreBest() {
  if (best_ == nullptr) return;
  rows_ = MakeRows();
  blocks_.clear();
  block_floats_ = 0;
  const auto restore = [&](uint64_t key, const float* weights) {
    const size_t width = table_->RowWidth(key);
    std::copy(weights, weights + width, Row(key, width).weights);
  };
  best_->rows.ForEach(restore);
  for (const auto& [key, weights] : best_->blocks) restore(key, weights.data());
}

}  // namespace pawl
