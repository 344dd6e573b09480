#include "worker/dense/local_gradients.h"

#include <algorithm>
#include <utility>

#include "client_lib/base/status_macros.h"

namespace pawl {

void LocalGradients::Expect(uint32_t rank, uint64_t incarnation) {
  MutexLock lock(mu_);
  ranks_[rank] = Rank();
  ranks_[rank].incarnation = incarnation;
  ++changes_;
  Notify();
}

absl::Status LocalGradients::Begin(uint32_t rank, uint64_t first_step) {
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<float> gradients, memory_.Allocate(layout_.elements()));
  MutexLock lock(mu_);
  Rank& started = ranks_.at(rank);
  started.has_started = true;
  started.first_step = first_step;
  started.ready.assign(layout_.tables(), false);
  started.gradients = std::move(gradients);
  started.changes_at_begin = ++changes_;
  Notify();
  return absl::OkStatus();
}

bool LocalGradients::End(uint32_t rank, uint64_t next_step) {
  MutexLock lock(mu_);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return false;
  if (found->second.step.has_value() && *found->second.step < next_step) {
    departed_.push_back({rank, std::move(found->second)});
  }
  ranks_.erase(found);
  ++changes_;
  Notify();
  return ranks_.empty();
}

uint64_t LocalGradients::changes() const {
  MutexLock lock(mu_);
  return changes_;
}

uint64_t LocalGradients::ChangesAtBegin(uint32_t rank) const {
  MutexLock lock(mu_);
  return ranks_.at(rank).changes_at_begin;
}

std::optional<std::vector<GroupRank>> LocalGradients::Ranks() const {
  MutexLock lock(mu_);
  std::vector<GroupRank> ranks;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.has_started) return std::nullopt;
    GroupRank& to = ranks.emplace_back();
    to.set_rank(number);
    to.set_incarnation(rank.incarnation);
  }
  return ranks;
}

std::optional<uint64_t> LocalGradients::EarliestStep() const {
  MutexLock lock(mu_);
  std::optional<uint64_t> earliest;
  const auto add = [&](uint64_t step) { earliest = std::min(earliest.value_or(step), step); };
  for (const auto& [number, rank] : ranks_) {
    if (rank.has_started) add(rank.first_step);
  }
  for (const Departed& departed : departed_) add(*departed.rank.step);
  return earliest;
}

absl::Span<float> LocalGradients::Buffer(uint32_t rank, size_t table) {
  MutexLock lock(mu_);
  return {ranks_.at(rank).gradients.get() + layout_.table_begin(table),
          layout_.table_elements(table)};
}

void LocalGradients::MarkReady(uint32_t rank, uint64_t step, size_t table) {
  MutexLock lock(mu_);
  Rank& giver = ranks_.at(rank);
  if (giver.step != step) {
    giver.step = step;
    giver.ready.assign(layout_.tables(), false);
    giver.skipped = false;
  }
  giver.ready[table] = true;
  Notify();
}

void LocalGradients::SkipStep(uint32_t rank, uint64_t step) {
  MutexLock lock(mu_);
  Rank& giver = ranks_.at(rank);
  giver.step = step;
  giver.skipped = true;
  Notify();
}

bool LocalGradients::IsReadyLocked(const Rank& rank, const DenseBucket& bucket,
                                   uint64_t step) const {
  if (rank.step != step) return false;
  return rank.skipped ||
         std::all_of(rank.ready.begin() + static_cast<std::ptrdiff_t>(bucket.first_table),
                     rank.ready.begin() + static_cast<std::ptrdiff_t>(bucket.end_table),
                     [](bool given) { return given; });
}

bool LocalGradients::IsComplete(size_t bucket, uint64_t step) const {
  MutexLock lock(mu_);
  for (const auto& [number, rank] : ranks_) {
    if (!rank.has_started) return false;
    if (rank.first_step <= step && !IsReadyLocked(rank, layout_.buckets()[bucket], step))
      return false;
  }
  return true;
}

std::vector<std::shared_ptr<float>> LocalGradients::Sum(size_t bucket, uint64_t step,
                                                        Stream& stream, float* sum,
                                                        absl::Span<float> flags) const {
  const DenseBucket& part = layout_.buckets()[bucket];
  // By rank. A rank whose successor returned to this process contributes to a step in only one of
  // its incarnations.
  std::map<uint32_t, std::shared_ptr<float>> contributions;
  std::fill(flags.begin(), flags.end(), 0.0f);
  {
    MutexLock lock(mu_);
    const auto add = [&](uint32_t number, const Rank& rank) PAWL_REQUIRES(mu_) {
      if (!IsReadyLocked(rank, part, step) || number >= flags.size()) return;
      flags[number] += 1.0f;
      if (!rank.skipped) contributions[number] = rank.gradients;
    };
    for (const Departed& departed : departed_) add(departed.number, departed.rank);
    for (const auto& [number, rank] : ranks_) add(number, rank);
  }
  bool first = true;
  std::vector<std::shared_ptr<float>> added;
  for (const auto& [number, gradients] : contributions) {
    added.push_back(gradients);
    const float* const gradient = gradients.get() + part.begin;
    if (std::exchange(first, false)) {
      stream.Copy({gradient, 1, part.count, part.count}, Write::kReplace,
                  {sum, 1, part.count, part.count});
    } else {
      stream.Axpy(part.count, 1, gradient, sum);
    }
  }
  if (first) stream.Zero(sum, part.count * sizeof(float));
  return added;
}

void LocalGradients::DropBefore(uint64_t step) {
  MutexLock lock(mu_);
  departed_.erase(
      std::remove_if(departed_.begin(), departed_.end(),
                     [&](const Departed& departed) { return *departed.rank.step < step; }),
      departed_.end());
}

void LocalGradients::WaitForChange(uint64_t seen, MonotonicTime deadline) {
  MutexLock lock(mu_);
  while (events_ == seen && changed_.WaitUntil(mu_, deadline)) {
  }
}

void LocalGradients::Wake() {
  MutexLock lock(mu_);
  Notify();
}

uint64_t LocalGradients::events() const {
  MutexLock lock(mu_);
  return events_;
}

}  // namespace pawl
