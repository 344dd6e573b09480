#include "server/shard/step_sum.h"

#include <cstring>
#include <utility>

#include "absl/base/attributes.h"

namespace pawl {
namespace {

// Not inlined: gcc 12 then reports parts of the moved InlinedVector as uninitialized.
ABSL_ATTRIBUTE_NOINLINE Gradient CopyOf(const Gradient& gradient) {
  const size_t key_bytes = gradient.keys.size();
  const size_t value_bytes = gradient.values.size();
  const auto memory = std::make_shared_for_overwrite<char[]>(key_bytes + value_bytes);
  gradient.keys.CopyTo(memory.get());
  gradient.values.CopyTo(memory.get() + key_bytes);
  return {ByteView(memory.get(), key_bytes), ByteView(memory.get() + key_bytes, value_bytes),
          memory};
}

}  // namespace

StepSum::StepSum(uint32_t ranks, bool sum_at_close) : ranks_(ranks), sum_at_close_(sum_at_close) {}

void StepSum::Add(uint32_t rank, uint64_t ordinal, std::shared_ptr<const TableSchema> table,
                  Gradient gradient, HasEnded has_ended) {
  key_count_ += gradient.keys.size() / sizeof(uint64_t);
  staged_bytes_ += gradient.keys.size() + gradient.values.size();
  const size_t owner_bytes = std::exchange(gradient.owner_bytes, 0);
  std::map<uint64_t, Staged>& early = open_[rank].early;
  early.emplace(ordinal, Staged{std::move(table), std::move(gradient)});
  if (!sum_at_close_) FoldPrefix(has_ended);
  const auto left = early.find(ordinal);
  if (left == early.end()) return;
  // The gradient has memory of its own; a copy would need as much.
  if (owner_bytes > 0 &&
      owner_bytes == left->second.gradient.keys.size() + left->second.gradient.values.size())
    return;
  if (left->second.gradient.owner != nullptr && owner_bytes > 0 &&
      owner_bytes <= kMaxKeptMessageBytes - kept_message_bytes_) {
    left->second.gradient.owner_bytes = owner_bytes;
    kept_message_bytes_ += owner_bytes;
    return;
  }
  left->second.gradient = CopyOf(left->second.gradient);
}

void StepSum::OnRanksEnded(HasEnded has_ended) {
  if (!sum_at_close_) FoldPrefix(has_ended);
}

void StepSum::FoldPrefix(HasEnded has_ended) {
  for (; first_open_rank_ < ranks_; ++first_open_rank_) {
    if (const auto open = open_.find(first_open_rank_); open != open_.end()) {
      Rank& rank = open->second;
      while (!rank.early.empty() && rank.early.begin()->first == rank.next_ordinal) {
        Fold(rank.early.begin()->second);
        rank.early.erase(rank.early.begin());
        ++rank.next_ordinal;
      }
    }
    if (!has_ended(first_open_rank_)) return;
  }
}

void StepSum::FoldAtClose(HasEnded has_ended) {
  for (auto& [number, rank] : open_) {
    if (!has_ended(number)) continue;
    for (const auto& [ordinal, staged] : rank.early) Fold(staged);
    rank.early.clear();
  }
}

void StepSum::Fold(const Staged& staged) {
  staged_bytes_ -= staged.gradient.keys.size() + staged.gradient.values.size();
  kept_message_bytes_ -= staged.gradient.owner_bytes;
  const TableSchema& table = *staged.table;
  const auto [entry, is_new_table] = sums_.try_emplace(
      table.id(), Sum{staged.table, RowStore(table.is_dense() ? 0 : table.MaxRowWidth())});
  RowStore& rows = entry->second.rows;
  const std::vector<uint64_t> keys = CopyKeys(staged.gradient.keys);
  float* row = nullptr;
  bool first = false;
  ForEachPart(table, keys, staged.gradient.values,
              [&](size_t i, size_t begin, size_t count, const char* data) {
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
  // All gradients are kept until the close.
  return open_.contains(rank) || open_.size() < needed;
}

uint64_t StepSum::Clear() {
  uint64_t dropped = 0;
  for (const auto& [number, rank] : open_) dropped += rank.early.size();
  sums_.clear();
  first_open_rank_ = 0;
  key_count_ = 0;
  staged_bytes_ = 0;
  kept_message_bytes_ = 0;
  open_.clear();
  return dropped;
}

}  // namespace pawl
