#include "server/shard/step_sum.h"

#include <utility>

#include "absl/base/attributes.h"

namespace pawl {
namespace {

// Not inlined: inlined, gcc 12 warns that parts of the moved InlinedVector are uninitialized.
ABSL_ATTRIBUTE_NOINLINE Gradient CopyOf(const Gradient& gradient) {
  const size_t key_bytes = gradient.keys.size();
  const size_t value_bytes = gradient.values.size();
  const auto memory = std::make_shared_for_overwrite<char[]>(key_bytes + value_bytes);
  gradient.keys.CopyTo(memory.get());
  gradient.values.CopyTo(memory.get() + key_bytes);
  return {ByteView(memory.get(), key_bytes), ByteView(memory.get() + key_bytes, value_bytes),
          memory};
}

bool IsSameMessage(const std::weak_ptr<const void>& a, const std::shared_ptr<const void>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

StepSum::StepSum(uint32_t ranks, bool sum_at_close) : ranks_(ranks), sum_at_close_(sum_at_close) {}

bool StepSum::IsAddedAtOnce(const TableSchema& table, const Gradient& gradient) {
  return table.is_dense() || gradient.keys.size() + gradient.values.size() > kMaxWaitingBytes;
}

bool StepSum::IsNext(uint32_t rank, uint64_t ordinal) const {
  if (sum_at_close_ || rank != first_open_rank_) return false;
  const auto open = open_.find(rank);
  return ordinal == (open == open_.end() ? 0 : open->second.next_ordinal);
}

void StepSum::Add(uint32_t rank, uint64_t ordinal, std::shared_ptr<const TableSchema> table,
                  Gradient gradient, HasEnded has_ended) {
  key_count_ += gradient.keys.size() / sizeof(uint64_t);
  staged_bytes_ += StagedBytes(gradient);
  const bool is_next = IsNext(rank, ordinal);
  if (gradient.keys.empty()) {
    // Only its place is kept.
    gradient = Gradient();
  } else if (!is_next || !IsAddedAtOnce(*table, gradient)) {
    Keep(gradient);
  }
  open_[rank].early.emplace(ordinal, Staged{std::move(table), std::move(gradient)});
  if (is_next) TakePrefix(has_ended);
}

void StepSum::Keep(Gradient& gradient) {
  const size_t bytes = gradient.keys.size() + gradient.values.size();
  if (gradient.owner != nullptr && gradient.owner_bytes > 0 && bytes > 0) {
    // The gradient has memory of its own; a copy would need as much.
    if (gradient.owner_bytes == bytes || IsSameMessage(last_kept_, gradient.owner)) return;
    if (gradient.owner_bytes <= kMaxKeptMessageBytes - kept_message_bytes_) {
      kept_message_bytes_ += gradient.owner_bytes;
      last_kept_ = gradient.owner;
      return;
    }
  }
  gradient = CopyOf(gradient);
}

void StepSum::OnRanksEnded(HasEnded has_ended) {
  if (!sum_at_close_) TakePrefix(has_ended);
}

void StepSum::TakePrefix(HasEnded has_ended) {
  for (; first_open_rank_ < ranks_; ++first_open_rank_) {
    if (const auto open = open_.find(first_open_rank_); open != open_.end()) {
      Rank& rank = open->second;
      while (!rank.early.empty() && rank.early.begin()->first == rank.next_ordinal) {
        Take(std::move(rank.early.begin()->second));
        rank.early.erase(rank.early.begin());
        ++rank.next_ordinal;
      }
    }
    if (!has_ended(first_open_rank_)) return;
  }
}

void StepSum::TakeAtClose(HasEnded has_ended) {
  for (auto& [number, rank] : open_) {
    if (!has_ended(number)) continue;
    for (auto& [ordinal, staged] : rank.early) Take(std::move(staged));
    rank.early.clear();
  }
}

void StepSum::Take(Staged staged) {
  Gradient& gradient = staged.gradient;
  const size_t bytes = gradient.keys.size() + gradient.values.size();
  staged_bytes_ -= StagedBytes(gradient);
  GradientSum& sum = sums_.try_emplace(staged.table->id(), staged.table).first->second;
  if (IsAddedAtOnce(*staged.table, gradient)) {
    // Dense tables have no gradients that wait.
    if (!staged.table->is_dense()) AddWaiting();
    sum.AddNow(gradient);
    if (waiting_bytes_ == 0 && staged_bytes_ == 0) ForgetKept();
    return;
  }
  // kMaxWaitingBytes would not limit gradients without keys.
  if (bytes == 0) return;
  waiting_bytes_ += bytes;
  sum.AddLater(std::move(gradient));
  if (waiting_bytes_ > kMaxWaitingBytes) AddWaiting();
}

void StepSum::AddWaiting() {
  for (auto& [table, sum] : sums_) sum.AddWaiting();
  waiting_bytes_ = 0;
  // Otherwise an early gradient may keep any of the messages.
  if (staged_bytes_ == 0) ForgetKept();
}

void StepSum::ForgetKept() {
  kept_message_bytes_ = 0;
  last_kept_.reset();
}

double StepSum::Squares(float scale) {
  AddWaiting();
  double squares = 0;
  for (const auto& [table, sum] : sums_) {
    if (!sum.table()->spec().optimizer().has_assign()) squares += sum.Squares(scale);
  }
  return squares;
}

bool StepSum::MustTake(uint32_t rank, uint64_t ordinal, size_t needed) const {
  if (!sum_at_close_) return IsNext(rank, ordinal);
  return open_.contains(rank) || open_.size() < needed;
}

uint64_t StepSum::Clear() {
  uint64_t dropped = 0;
  for (const auto& [number, rank] : open_) dropped += rank.early.size();
  sums_.clear();
  first_open_rank_ = 0;
  key_count_ = 0;
  staged_bytes_ = 0;
  waiting_bytes_ = 0;
  open_.clear();
  ForgetKept();
  return dropped;
}

}  // namespace pawl
