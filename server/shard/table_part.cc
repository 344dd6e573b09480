#include "server/shard/table_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client_lib/base/compiler.h"
#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

void PrefetchRow(const float* row, size_t floats) {
  const char* end = reinterpret_cast<const char*>(row + floats);
  for (const char* line = reinterpret_cast<const char*>(row); line < end; line += 64)
    Prefetch(line);
}

}  // namespace

TablePart::TablePart(std::shared_ptr<const TableSchema> table)
    : table_(std::move(table)), rows_(MakeRows()) {}

RowStore TablePart::MakeRows() const {
  return RowStore(table_->is_dense() ? 0
                                     : table_->MaxRowWidth() + StateFloats(table_->MaxRowWidth()));
}

uint64_t TablePart::CountMissing(const ByteView& keys) const {
  uint64_t missing = 0;
  for (const uint64_t key : CopyKeys(keys))
    missing += !(table_->is_dense() ? blocks_.contains(key) : rows_.contains(key));
  return missing;
}

void TablePart::Initialize(absl::Span<const uint64_t> keys, float* const* rows) const {
  const size_t width = table_->MaxRowWidth();
  table_->initializer().FillRows(keys, width, rows);
  for (size_t i = 0; i < keys.size(); ++i) InitializeState(width, rows[i] + width);
}

void TablePart::InitializeState(size_t width, float* state) const {
  table_->rule().InitializeSlots(width, state);
  if (table_->counts_updates()) std::memset(&state[StateFloats(width) - 1], 0, sizeof(float));
}

float* TablePart::Row(uint64_t key) {
  const size_t width = table_->MaxRowWidth();
  bool inserted;
  float* const row = rows_.FindOrInsert(key, width + StateFloats(width), inserted);
  if (inserted) Initialize({&key, 1}, &row);
  return row;
}

TablePart::BlockForWriting TablePart::BlockOf(uint64_t key, size_t width) {
  auto found = blocks_.find(key);
  if (found != blocks_.end())
    return {found->second.weights.Mutable(), found->second.state.Mutable()};
  const size_t state_floats = StateFloats(width);
  found = blocks_.emplace(key, Block{SharedBlock(width), SharedBlock(state_floats)}).first;
  block_floats_ += width + state_floats;
  const BlockForWriting block = {found->second.weights.Mutable(), found->second.state.Mutable()};
  table_->initializer().Fill(key, 0, width, block.weights);
  InitializeState(width, block.state);
  return block;
}

void TablePart::FindRun(absl::Span<const uint64_t> keys, float** rows) {
  const size_t width = table_->MaxRowWidth();
  const size_t floats = width + StateFloats(width);
  uint64_t new_keys[kRowsInRun];
  float* new_rows[kRowsInRun];
  size_t new_count = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    bool inserted;
    rows[i] = rows_.FindOrInsert(keys[i], floats, inserted);
    PrefetchRow(rows[i], floats);
    if (!inserted) continue;
    new_keys[new_count] = keys[i];
    new_rows[new_count++] = rows[i];
  }
  Initialize({new_keys, new_count}, new_rows);
}

void TablePart::ApplyRun(uint64_t step, float scale, absl::Span<const uint64_t> keys,
                         const char* const* gradients) {
  float* rows[kRowsInRun];
  for (const uint64_t key : keys) rows_.Prefetch(key);
  FindRun(keys, rows);
  table_->rule().ApplyRows({.step = step, .base_rate = base_rate_}, scale, table_->MaxRowWidth(),
                           keys.size(), gradients, rows);
}

// Finds the rows of a run before it updates those of the run before, which have then arrived in the
// cache.
void TablePart::ApplySparse(uint64_t step, float scale, const GradientSum& sum) {
  float* rows[2][kRowsInRun];
  const char* const* former_sums = nullptr;
  size_t former_count = 0;
  size_t turn = 0;
  sum.ForEachRun(
      [&](absl::Span<const uint64_t> keys) {
        for (const uint64_t key : keys) rows_.Prefetch(key);
      },
      [&](absl::Span<const uint64_t> keys, const char* const* sums) {
        FindRun(keys, rows[turn]);
        table_->rule().ApplyRows({.step = step, .base_rate = base_rate_}, scale,
                                 table_->MaxRowWidth(), former_count, former_sums, rows[turn ^ 1]);
        former_sums = sums;
        former_count = keys.size();
        turn ^= 1;
      });
}

void TablePart::ApplyPart(uint64_t step, float scale, size_t width, size_t begin, size_t count,
                          const char* gradient, const BlockForWriting& block) const {
  UpdatePosition position;
  position.step = step;
  position.base_rate = base_rate_;
  uint32_t updates = 0;
  if (table_->counts_updates())
    std::memcpy(&updates, &block.state[StateFloats(width) - 1], sizeof(updates));
  position.prior_updates = updates;
  table_->rule().Apply(position, scale, gradient, width, begin, count, block.weights, block.state);
  if (!table_->counts_updates() || begin + count < width) return;
  // Adam's corrections reach 1 long before the counter saturates.
  if (updates < UINT32_MAX) ++updates;
  std::memcpy(&block.state[StateFloats(width) - 1], &updates, sizeof(updates));
}

void TablePart::ApplyBlock(uint64_t step, float scale, uint64_t key, const char* gradient) {
  const size_t width = table_->RowWidth(key);
  ApplyPart(step, scale, width, 0, width, gradient, BlockOf(key, width));
}

void TablePart::Apply(uint64_t step, float scale, const Gradient& gradient) {
  const std::vector<uint64_t> keys = CopyKeys(gradient.keys);
  if (!table_->is_dense()) {
    const size_t row_bytes = table_->MaxRowWidth() * sizeof(float);
    char scratch[kMaxRowWidth * sizeof(float)];
    const char* gradients[kRowsInRun];
    absl::Span<const uint64_t> rest = keys;
    gradient.values.ForEachRun(row_bytes, scratch, [&](const char* data, size_t rows) {
      while (rows > 0) {
        const size_t count = std::min(rows, kRowsInRun);
        for (size_t i = 0; i < count; ++i) gradients[i] = data + i * row_bytes;
        ApplyRun(step, scale, rest.subspan(0, count), gradients);
        data += count * row_bytes;
        rows -= count;
        rest.remove_prefix(count);
      }
    });
    return;
  }
  // A rule that is not elementwise needs the whole block contiguously.
  std::vector<char> whole(table_->rule().IsElementwise() ? 0
                                                         : table_->MaxRowWidth() * sizeof(float));
  ForEachPart(*table_, keys, gradient.values,
              [&](size_t i, size_t begin, size_t count, const char* data) {
                const size_t width = table_->RowWidth(keys[i]);
                if (!whole.empty()) {
                  std::memcpy(whole.data() + begin * sizeof(float), data, count * sizeof(float));
                  if (begin + count == width) ApplyBlock(step, scale, keys[i], whole.data());
                  return;
                }
                ApplyPart(step, scale, width, begin, count, data, BlockOf(keys[i], width));
              });
}

void TablePart::Apply(uint64_t step, float scale, const GradientSum& sum) {
  if (!table_->is_dense()) return ApplySparse(step, scale, sum);
  sum.ForEachRun([](absl::Span<const uint64_t>) {},
                 [&](absl::Span<const uint64_t> keys, const char* const* sums) {
                   for (size_t i = 0; i < keys.size(); ++i)
                     ApplyBlock(step, scale, keys[i], sums[i]);
                 });
}

void TablePart::Assign(const Assignment& assignment) {
  ByteCursor values(assignment.values);
  ByteCursor slots(assignment.slots);
  for (const uint64_t key : CopyKeys(assignment.keys)) {
    const size_t width = table_->RowWidth(key);
    BlockForWriting row;
    if (table_->is_dense()) {
      row = BlockOf(key, width);
    } else {
      row.weights = Row(key);
      row.state = row.weights + width;
    }
    values.Read(row.weights, width * sizeof(float));
    switch (assignment.effect) {
      case Assignment::Slots::kReset:
        InitializeState(width, row.state);
        break;
      case Assignment::Slots::kGiven: {
        const size_t floats = StateFloats(width);
        slots.Read(row.state, floats * sizeof(float));
        if (!table_->counts_updates()) break;
        const uint32_t updates = Assignment::UpdatesOf(row.state[floats - 1]);
        std::memcpy(&row.state[floats - 1], &updates, sizeof(updates));
        break;
      }
      case Assignment::Slots::kKeep:
        break;
    }
  }
}

void TablePart::ReadSlots(const ByteView& keys, char* out) const {
  std::vector<float> initial(StateFloats(table_->MaxRowWidth()));
  if (initial.empty()) return;
  std::vector<float> slots(initial.size());
  for (const uint64_t key : CopyKeys(keys)) {
    const size_t width = table_->RowWidth(key);
    const size_t floats = StateFloats(width);
    const float* state = nullptr;
    if (!table_->is_dense()) {
      if (const float* const row = rows_.Find(key); row != nullptr) state = row + width;
    } else if (const auto found = blocks_.find(key); found != blocks_.end()) {
      state = found->second.state.data();
    }
    if (state == nullptr) {
      InitializeState(width, initial.data());
      state = initial.data();
    }
    table_->CopySlots(width, state, slots.data());
    // `out` may be unaligned.
    std::memcpy(out, slots.data(), floats * sizeof(float));
    out += floats * sizeof(float);
  }
}

void TablePart::Read(const ByteView& keys, char* out) const {
  const std::vector<uint64_t> wanted = CopyKeys(keys);
  const size_t width = table_->MaxRowWidth();
  const size_t bytes = width * sizeof(float);
  // Index entries and rows are prefetched while earlier rows are copied. rows[i % kRing] is row i.
  constexpr size_t kRing = 32, kIndexAhead = 32, kRowAhead = 16;
  const float* rows[kRing];
  uint64_t missing_keys[kRowsInRun];
  char* missing_out[kRowsInRun];
  size_t missing = 0;
  const auto find = [&](size_t i) {
    if (i >= wanted.size()) return;
    rows[i % kRing] = rows_.Find(wanted[i]);
    if (rows[i % kRing] != nullptr) PrefetchRow(rows[i % kRing], width);
  };
  for (size_t i = 0; i < std::min(wanted.size(), kIndexAhead); ++i) rows_.Prefetch(wanted[i]);
  for (size_t i = 0; i < kRowAhead; ++i) find(i);
  for (size_t i = 0; i < wanted.size(); ++i, out += bytes) {
    if (i + kIndexAhead < wanted.size()) rows_.Prefetch(wanted[i + kIndexAhead]);
    find(i + kRowAhead);
    if (rows[i % kRing] != nullptr) {
      // `out` follows other bytes of a message and may be unaligned.
      std::memcpy(out, rows[i % kRing], bytes);
      continue;
    }
    missing_keys[missing] = wanted[i];
    missing_out[missing] = out;
    if (++missing == kRowsInRun)
      ReadInitial({missing_keys, std::exchange(missing, 0)}, missing_out);
  }
  ReadInitial({missing_keys, missing}, missing_out);
}

void TablePart::ReadInitial(absl::Span<const uint64_t> keys, char* const* out) const {
  if (keys.empty()) return;
  const size_t width = table_->MaxRowWidth();
  std::vector<float> values(keys.size() * width);
  float* rows[kRowsInRun];
  for (size_t i = 0; i < keys.size(); ++i) rows[i] = &values[i * width];
  table_->initializer().FillRows(keys, width, rows);
  for (size_t i = 0; i < keys.size(); ++i) std::memcpy(out[i], rows[i], width * sizeof(float));
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
  return table->StateFloats(table->RowWidth(key));
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
    std::copy(weights, weights + width,
              table_->is_dense() ? BlockOf(key, width).weights : Row(key));
  };
  best_->rows.ForEach(restore);
  for (const auto& [key, weights] : best_->blocks) restore(key, weights.data());
}

}  // namespace pawl
