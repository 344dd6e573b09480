#include "server/shard/step_sum.h"

#include <cstring>
#include <utility>

#include "absl/base/attributes.h"

namespace pawl {
namespace {

// Not inlined: gcc 12 then takes parts of the moved InlinedVector for uninitialized.
ABSL_ATTRIBUTE_NOINLINE Gradient CopyOf(const Gradient& gradient) {
  const size_t key_bytes = gradient.keys.size();
  const size_t value_bytes = gradient.values.size();
  const auto memory = std::make_shared_for_overwrite<char[]>(key_bytes + value_bytes);
  gradient.keys.CopyTo(memory.get());
  gradient.values.CopyTo(memory.get() + key_bytes);
  return {ByteView(memory.get(), key_bytes), ByteView(memory.get() + key_bytes, value_bytes), memory};
}

}  // namespace

StepSum::StepSum(uint32_t ranks, bool sum_at_close) : sum_at_close_(sum_at_close), ranks_(ranks) {}

void StepSum::Add(uint32_t rank, uint64_t ordinal, std::shared_ptr<const TableSchema> table, Gradient gradient) {
  key_count_ += gradient.keys.size() / sizeof(uint64_t);
  staged_bytes_ += gradient.keys.size() + gradient.values.size();
  const size_t owner_bytes = std::exchange(gradient.owner_bytes, 0);
  std::map<uint64_t, Staged>& early = ranks_[rank].early;
  early.emplace(ordinal, Staged{std::move(table), std::move(gradient)});
  if (!sum_at_close_) FoldPrefix();
  const auto left = early.find(ordinal);
  if (left == early.end()) return;
  // Memory of its own: a copy would take as much.
  if (owner_bytes > 0 && owner_bytes == left->second.gradient.keys.size() + left->second.gradient.values.size()) return;
  if (left->second.gradient.owner != nullptr && owner_bytes > 0 &&
      owner_bytes <= kMaxKeptMessageBytes - kept_message_bytes_) {
    left->second.gradient.owner_bytes = owner_bytes;
    kept_message_bytes_ += owner_bytes;
    return;
  }
  left->second.gradient = CopyOf(left->second.gradient);
}

void StepSum::End(uint32_t rank) {
  ranks_[rank].ended = true;
  if (!sum_at_close_) FoldPrefix();
}

void StepSum::FoldPrefix() {
  while (first_open_rank_ < ranks_.size()) {
    Rank& rank = ranks_[first_open_rank_];
    while (!rank.early.empty() && rank.early.begin()->first == rank.next_ordinal) {
      Fold(rank.early.begin()->second);
      rank.early.erase(rank.early.begin());
      ++rank.next_ordinal;
    }
    if (!rank.ended) return;
    ++first_open_rank_;
  }
}

void StepSum::FoldAtClose() {
  for (Rank& rank : ranks_) {
    if (!rank.ended) continue;
    for (const auto& [ordinal, staged] : rank.early) Fold(staged);
    rank.early.clear();
  }
}

void StepSum::Fold(const Staged& staged) {
  staged_bytes_ -= staged.gradient.keys.size() + staged.gradient.values.size();
  kept_message_bytes_ -= staged.gradient.owner_bytes;
  const TableSchema& table = *staged.table;
  const auto [entry, is_new_table] =
      sums_.try_emplace(table.id(), Sum{staged.table, RowStore(table.is_dense() ? 0 : table.MaxRowWidth())});
  RowStore& rows = entry->second.rows;
  const std::vector<uint64_t> keys = CopyKeys(staged.gradient.keys);
  float* row = nullptr;
  bool first = false;
  ForEachPart(table, keys, staged.gradient.values, [&](size_t i, size_t begin, size_t count, const char* data) {
    if (begin == 0) row = rows.FindOrInsert(keys[i], table.RowWidth(keys[i]), first);
    if (first) {
      std::memcpy(row + begin, data, count * sizeof(float));
      return;
    }
    float* sum = row + begin;
    for (size_t k = 0; k < count; ++k) {
      float value;
      std::memcpy(&value, data + k * sizeof(float), sizeof(float));
      sum[k] += value;
    }
  });
}

bool StepSum::MustTake(uint32_t rank, size_t needed) const {
  if (!sum_at_close_) return rank == first_open_rank_;
  if (!ranks_[rank].early.empty()) return true;
  size_t begun = 0;
  for (const Rank& other : ranks_) begun += !other.early.empty();
  return begun < needed;
}

uint64_t StepSum::Clear() {
  uint64_t dropped = 0;
  for (const Rank& rank : ranks_) dropped += rank.early.size();
  sums_.clear();
  first_open_rank_ = 0;
  key_count_ = 0;
  staged_bytes_ = 0;
  kept_message_bytes_ = 0;
  for (Rank& rank : ranks_) rank = Rank();
  return dropped;
}

}  // namespace pawl
