#include "worker/dense/dense_state.h"

#include <algorithm>
#include <cstring>

#include "client_lib/base/status_macros.h"

namespace pawl {

DenseState::DenseState(const DenseLayout& layout, const UpdateRule& rule) : layout_(layout), rule_(rule) {
  for (std::vector<float>& weights : weights_) weights.resize(layout.elements());
  slots_.resize(layout.slots());
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
absl::Status DenseState::AwaitCondition(Condition condition, MonotonicDuration limit, const Interrupt& interrupt) const {
  const MonotonicTime deadline = Clock::Real().Now() + limit;
  MutexLock lock(mu_);
  while (true) {
    PAWL_RETURN_IF_ERROR(failure_);
    if (!retired_ && condition()) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(interrupt.reason());
    const MonotonicTime now = Clock::Real().Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the dense parameters did not come in ", Seconds(limit), " s: other workers did not do the step"));
    }
    changed_.WaitUntil(mu_, std::min<MonotonicTime>(deadline, now + kInterruptInterval));
  }
}

absl::StatusOr<uint64_t> DenseState::VersionFor(uint64_t step, MonotonicDuration limit, const Interrupt& interrupt) const {
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

absl::Status DenseState::AwaitTakenIn(uint64_t changes, MonotonicDuration limit, const Interrupt& interrupt) const {
  return AwaitCondition([&]() PAWL_REQUIRES(mu_) { return taken_in_ >= changes; }, limit, interrupt);
}

void DenseState::SetTakenIn(uint64_t changes) {
  MutexLock lock(mu_);
  taken_in_ = changes;
  changed_.NotifyAll();
}

absl::Status DenseState::Await(size_t table, uint64_t version, MonotonicDuration limit, const Interrupt& interrupt) const {
  return AwaitCondition(
      [&]() PAWL_REQUIRES(mu_) {
        for (size_t b = layout_.first_bucket(table); b < layout_.end_bucket(table); ++b) {
          if (versions_[b] < static_cast<int64_t>(version)) return false;
        }
        return true;
      },
      limit, interrupt);
}

absl::Status DenseState::AwaitAll(uint64_t version, MonotonicDuration limit, const Interrupt& interrupt) const {
  return AwaitCondition(
      [&]() PAWL_REQUIRES(mu_) {
        return *std::min_element(versions_.begin(), versions_.end()) >= static_cast<int64_t>(version);
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
  return absl::MakeConstSpan(weights_[version % 2]).subspan(layout_.table_begin(table), layout_.table_elements(table));
}

absl::Span<const float> DenseState::Slots(size_t table) const {
  return absl::MakeConstSpan(slots_).subspan(layout_.table_slots_begin(table), layout_.table_slots(table));
}

UpdatePosition DenseState::PositionOf(size_t bucket) const {
  MutexLock lock(mu_);
  const uint64_t version = static_cast<uint64_t>(versions_[bucket]);
  return {.step = version, .prior_updates = version - std::min(version, lost_steps_)};
}

void DenseState::Apply(size_t bucket, float scale, const float* gradient) {
  const UpdatePosition position = PositionOf(bucket);
  const uint64_t version = position.step;
  const DenseBucket& all = layout_.buckets()[bucket];
  std::memcpy(weights(bucket, version + 1), weights(bucket, version), all.count * sizeof(float));
  for (size_t i = all.first_block; i < all.end_block; ++i) {
    const DenseBlock& block = layout_.blocks()[i];
    rule_.Apply(position, scale, gradient + (block.begin - all.begin), block.count, 0, block.count,
                weights_[(version + 1) % 2].data() + block.begin, slots_.data() + block.slots_begin);
  }
  Publish(bucket, version + 1);
}

float* DenseState::weights(size_t bucket, uint64_t version) {
  return weights_[version % 2].data() + layout_.buckets()[bucket].begin;
}

float* DenseState::slots(size_t bucket) { return slots_.data() + layout_.buckets()[bucket].slots_begin; }

void DenseState::Publish(size_t bucket, uint64_t version) {
  MutexLock lock(mu_);
  const int64_t published = static_cast<int64_t>(version);
  // Of what was there before only the version before is left.
  const bool continues = versions_[bucket] == published - 1 && versions_[bucket] != kNone;
  oldest_ = std::max(oldest_, continues ? published - 1 : published);
  versions_[bucket] = published;
  changed_.NotifyAll();
}

void DenseState::Relabel(size_t bucket, uint64_t version) {
  uint64_t from;
  {
    MutexLock lock(mu_);
    from = static_cast<uint64_t>(versions_[bucket]);
  }
  if (from % 2 != version % 2) {
    std::memcpy(weights(bucket, version), weights(bucket, from), layout_.buckets()[bucket].count * sizeof(float));
  }
  Publish(bucket, version);
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
