#include "worker/dense/dense_state.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<DenseState>> DenseState::Create(const DenseLayout& layout,
                                                               const UpdateRule& rule,
                                                               DenseMemory& memory) {
  auto state = absl::WrapUnique(new DenseState(layout, rule, memory));
  for (std::shared_ptr<float>& weights : state->weights_) {
    PAWL_ASSIGN_OR_RETURN(weights, memory.Allocate(layout.elements()));
  }
  PAWL_ASSIGN_OR_RETURN(state->slots_, memory.Allocate(layout.slots()));
  return state;
}

DenseState::DenseState(const DenseLayout& layout, const UpdateRule& rule, DenseMemory& memory)
    : layout_(layout), rule_(rule), memory_(memory) {
  for (const DenseBucket& bucket : layout.buckets()) {
    std::vector<UpdatedRow>& rows = rows_.emplace_back();
    for (size_t i = bucket.first_block; i < bucket.end_block; ++i) {
      const DenseBlock& block = layout.blocks()[i];
      rows.push_back({.begin = block.begin - bucket.begin,
                      .count = block.count,
                      .slots_begin = block.slots_begin - bucket.slots_begin});
    }
  }
  MutexLock lock(mu_);
  versions_.assign(layout.buckets().size(), kNone);
}

std::vector<int64_t> DenseState::versions() const {
  MutexLock lock(mu_);
  return versions_;
}

std::optional<uint64_t> DenseState::steps() const {
  MutexLock lock(mu_);
  const int64_t lowest = *std::min_element(versions_.begin(), versions_.end());
  if (lowest == kNone) return std::nullopt;
  return static_cast<uint64_t>(lowest);
}

template <typename Condition>
absl::Status DenseState::AwaitCondition(Condition condition, MonotonicDuration limit,
                                        const Interrupt& interrupt) const {
  const MonotonicTime deadline = Clock::Real().Now() + limit;
  MutexLock lock(mu_);
  while (true) {
    PAWL_RETURN_IF_ERROR(failure_);
    if (!retired_ && condition()) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(interrupt.reason());
    const MonotonicTime now = Clock::Real().Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the dense parameters did not come in ",
                                                      Seconds(limit),
                                                      " s: other workers did not do the step"));
    }
    changed_.WaitUntil(mu_, std::min<MonotonicTime>(deadline, now + kInterruptInterval));
  }
}

absl::StatusOr<uint64_t> DenseState::VersionFor(uint64_t step, MonotonicDuration limit,
                                                const Interrupt& interrupt) const {
  const int64_t wanted = static_cast<int64_t>(step);
  int64_t oldest = kNone;
  PAWL_RETURN_IF_ERROR(AwaitCondition(
      [&]() PAWL_REQUIRES(mu_) {
        oldest = oldest_;
        const int64_t lowest = *std::min_element(versions_.begin(), versions_.end());
        return lowest != kNone && lowest >= wanted - 1;
      },
      limit, interrupt));
  return static_cast<uint64_t>(std::max(wanted, oldest));
}

absl::Status DenseState::AwaitSynchronized(uint64_t changes, MonotonicDuration limit,
                                           const Interrupt& interrupt) const {
  return AwaitCondition([&]() PAWL_REQUIRES(mu_) { return synchronized_changes_ >= changes; },
                        limit, interrupt);
}

void DenseState::SetSynchronized(uint64_t changes) {
  MutexLock lock(mu_);
  synchronized_changes_ = changes;
  changed_.NotifyAll();
}

absl::Status DenseState::Await(size_t table, uint64_t version, MonotonicDuration limit,
                               const Interrupt& interrupt) const {
  return AwaitCondition(
      [&]() PAWL_REQUIRES(mu_) {
        for (size_t b = layout_.first_bucket(table); b < layout_.end_bucket(table); ++b) {
          if (versions_[b] < static_cast<int64_t>(version)) return false;
        }
        return true;
      },
      limit, interrupt);
}

absl::Status DenseState::AwaitAll(uint64_t version, MonotonicDuration limit,
                                  const Interrupt& interrupt) const {
  return AwaitCondition(
      [&]() PAWL_REQUIRES(mu_) {
        return *std::min_element(versions_.begin(), versions_.end()) >=
               static_cast<int64_t>(version);
      },
      limit, interrupt);
}

void DenseState::Retire() {
  MutexLock lock(mu_);
  retired_ = true;
}

bool DenseState::retired() const {
  MutexLock lock(mu_);
  return retired_;
}

void DenseState::Fail(const absl::Status& reason) {
  MutexLock lock(mu_);
  if (failure_.ok()) failure_ = reason;
  changed_.NotifyAll();
}

absl::Span<const float> DenseState::Values(size_t table, uint64_t version) const {
  return {weights_[version % 2].get() + layout_.table_begin(table), layout_.table_elements(table)};
}

absl::Span<const float> DenseState::Slots(size_t table) const {
  return {slots_.get() + layout_.table_slots_begin(table), layout_.table_slots(table)};
}

UpdatePosition DenseState::PositionOf(size_t bucket) const {
  MutexLock lock(mu_);
  const uint64_t version = static_cast<uint64_t>(versions_[bucket]);
  return {.step = version, .prior_updates = version - std::min(version, lost_steps_)};
}

absl::Status DenseState::Apply(size_t bucket, float scale, const float* gradient) {
  const UpdatePosition position = PositionOf(bucket);
  const uint64_t version = position.step;
  Stream& stream = memory_.stream();
  stream.Copy(WeightsOf(bucket, version), Write::kReplace, WeightsOf(bucket, version + 1));
  stream.Update(rule_, position, scale, rows_[bucket], gradient, weights(bucket, version + 1),
                slots(bucket));
  PAWL_RETURN_IF_ERROR(memory_.Finish());
  Publish(bucket, version + 1);
  return absl::OkStatus();
}

float* DenseState::weights(size_t bucket, uint64_t version) {
  return weights_[version % 2].get() + layout_.buckets()[bucket].begin;
}

Matrix DenseState::WeightsOf(size_t bucket, uint64_t version) {
  const size_t count = layout_.buckets()[bucket].count;
  return {weights(bucket, version), 1, count, count};
}

float* DenseState::slots(size_t bucket) {
  return slots_.get() + layout_.buckets()[bucket].slots_begin;
}

void DenseState::Publish(size_t bucket, uint64_t version) {
  MutexLock lock(mu_);
  const int64_t published = static_cast<int64_t>(version);
  // Only the version before is still available; older ones are overwritten.
  const bool continues = versions_[bucket] == published - 1 && versions_[bucket] != kNone;
  oldest_ = std::max(oldest_, continues ? published - 1 : published);
  versions_[bucket] = published;
  changed_.NotifyAll();
}

absl::Status DenseState::Relabel(size_t bucket, uint64_t version) {
  uint64_t from;
  {
    MutexLock lock(mu_);
    from = static_cast<uint64_t>(versions_[bucket]);
  }
  if (from % 2 != version % 2) {
    memory_.stream().Copy(WeightsOf(bucket, from), Write::kReplace, WeightsOf(bucket, version));
    PAWL_RETURN_IF_ERROR(memory_.Finish());
  }
  Publish(bucket, version);
  return absl::OkStatus();
}

void DenseState::Clear() {
  MutexLock lock(mu_);
  std::fill(versions_.begin(), versions_.end(), kNone);
  oldest_ = kNone;
  lost_steps_ = 0;
  retired_ = false;
}

uint64_t DenseState::lost_steps() const {
  MutexLock lock(mu_);
  return lost_steps_;
}

void DenseState::set_lost_steps(uint64_t steps) {
  MutexLock lock(mu_);
  lost_steps_ = steps;
}

}  // namespace pawl
