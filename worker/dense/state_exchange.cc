#include "worker/dense/state_exchange.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {

absl::Status StateExchange::Run(uint64_t earliest, const Load& load) {
  PAWL_RETURN_IF_ERROR(GatherVersions());
  if (IsStateMissing()) {
    if (group_.place() == 0) PAWL_RETURN_IF_ERROR(LoadState(earliest, load));
    PAWL_RETURN_IF_ERROR(GatherVersions());
  }
  if (shares_ != nullptr) {
    const std::vector<int64_t> own = shares_->Describe();
    descriptions_.resize(own.size() * group_.size());
    PAWL_RETURN_IF_ERROR(
        group_.Await(group_.AllGather(own.data(), descriptions_.data(), own.size())));
  }

  std::vector<Newest> newest;
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    newest.push_back(NewestOf(b));
    lowest = std::min(lowest, newest.back().version);
  }
  int64_t steps_before = 0;
  std::optional<uint64_t> lost_steps;
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    PAWL_RETURN_IF_ERROR(ExchangeBucket(b, newest[b], lowest, steps_before));
    if (newest[b].takes) lost_steps = static_cast<uint64_t>(newest[b].lost_steps);
  }
  // The count covers the whole state: setting it earlier would count the steps again.
  if (lost_steps.has_value()) state_.set_lost_steps(*lost_steps);
  if (steps_before > 0) {
    spdlog::warn(
        "dense parameters: a worker is gone with the optimizer slots of its share; using slots "
        "that are up to {} steps older",
        steps_before);
  }
  return CountLostSteps(earliest);
}

absl::Status StateExchange::GatherVersions() {
  std::vector<int64_t> own = state_.versions();
  own.push_back(static_cast<int64_t>(state_.lost_steps()));
  all_.resize(own.size() * group_.size());
  return group_.Await(group_.AllGather(own.data(), all_.data(), own.size()));
}

bool StateExchange::IsStateMissing() const {
  for (size_t p = 0; p < group_.size(); ++p) {
    if (VersionAt(p, 0) != DenseState::kNone) return false;
  }
  return true;
}

absl::Status StateExchange::LoadState(uint64_t earliest, const Load& load) {
  const absl::StatusOr<uint64_t> steps = load();
  if (!steps.ok()) {
    // An unreachable server may return, or another member can reach it.
    failed_ = !absl::IsUnavailable(steps.status()) && !absl::IsDeadlineExceeded(steps.status()) &&
              group_.CheckMembership().ok();
    return Annotate(steps.status(), "the dense parameters on the servers");
  }
  for (size_t b = 0; b < layout_.buckets().size() && shares_ != nullptr; ++b) shares_->SetWhole(b);
  if (*steps < earliest) {
    spdlog::info(
        "no worker has the dense parameters any more: training continues at step {} with the "
        "servers' parameters after {} steps",
        earliest, *steps);
  }
  // Counted before other members get the parameters: a member that gets them gets the count too.
  return CountLostSteps(earliest);
}

StateExchange::Newest StateExchange::NewestOf(size_t bucket) const {
  Newest newest;
  for (size_t p = 1; p < group_.size(); ++p) {
    if (VersionAt(p, bucket) > VersionAt(newest.source, bucket)) newest.source = p;
  }
  newest.version = VersionAt(newest.source, bucket);
  for (size_t p = 0; p < group_.size(); ++p) {
    const int64_t version = VersionAt(p, bucket);
    newest.is_everywhere = newest.is_everywhere && version == newest.version;
    if (version == newest.version) newest.lost_steps = std::max(newest.lost_steps, LostStepsAt(p));
    newest.any_member_lacks_it = newest.any_member_lacks_it || version == DenseState::kNone;
  }
  const int64_t own = VersionAt(group_.place(), bucket);
  newest.takes = own < newest.version;
  newest.is_missing_here = own == DenseState::kNone;
  return newest;
}

absl::Status StateExchange::ExchangeBucket(size_t bucket, const Newest& newest, int64_t lowest,
                                           int64_t& steps_before) {
  const int64_t own = VersionAt(group_.place(), bucket);
  // Two updates were made without this process's ranks: the hosts of their successors have
  // advanced, and this process was told too late. Lost steps brought no update: this process may
  // not know that they are counted, and no rank reads what preceded them.
  const int64_t missed = (newest.version - newest.lost_steps) - (own - LostStepsAt(group_.place()));
  if (newest.takes && !newest.is_missing_here && missed > 1) {
    failed_ = true;
    return absl::AbortedError(absl::StrCat("the dense parameters of this worker are at version ",
                                           own, " steps, those of others after ", newest.version));
  }
  const uint64_t version = static_cast<uint64_t>(newest.version);
  // Ranks without gradients for the unfinished step may be with a member that has no state: they
  // read the version before, which the source has in its other buffer.
  const bool with_version_before = newest.any_member_lacks_it && newest.version > lowest;
  // Kept beside the state until everything has arrived.
  std::vector<float> weights_before;
  if (with_version_before)
    PAWL_RETURN_IF_ERROR(ReceiveWeights(bucket, version - 1, newest, weights_before));
  std::vector<float> weights;
  if (!newest.is_everywhere) PAWL_RETURN_IF_ERROR(ReceiveWeights(bucket, version, newest, weights));
  std::function<absl::Status()> change_slots = [] { return absl::OkStatus(); };
  PAWL_RETURN_IF_ERROR(shares_ == nullptr
                           ? ReceiveSlots(bucket, newest, change_slots)
                           : ReceiveShares(bucket, newest, steps_before, change_slots));

  PAWL_RETURN_IF_ERROR(change_slots());
  if (!newest.takes) return absl::OkStatus();
  if (with_version_before && newest.is_missing_here) {
    PAWL_RETURN_IF_ERROR(state_.memory().FromHost(weights_before.data(), weights_before.size(),
                                                  state_.weights(bucket, version - 1)));
    state_.Publish(bucket, version - 1);
  }
  PAWL_RETURN_IF_ERROR(
      state_.memory().FromHost(weights.data(), weights.size(), state_.weights(bucket, version)));
  state_.Publish(bucket, version);
  return absl::OkStatus();
}

absl::Status StateExchange::ReceiveWeights(size_t bucket, uint64_t version, const Newest& newest,
                                           std::vector<float>& weights) {
  weights.resize(layout_.buckets()[bucket].count);
  if (newest.source == group_.place()) {
    PAWL_RETURN_IF_ERROR(
        state_.memory().ToHost(state_.weights(bucket, version), weights.size(), weights.data()));
  }
  return group_.Await(group_.Broadcast(weights.data(), weights.size(), newest.source));
}

absl::Status StateExchange::ReceiveSlots(size_t bucket, const Newest& newest,
                                         std::function<absl::Status()>& change) {
  const size_t count = layout_.buckets()[bucket].slots_count;
  if (newest.is_everywhere || count == 0) return absl::OkStatus();
  std::vector<float> slots(count);
  if (newest.source == group_.place()) {
    PAWL_RETURN_IF_ERROR(state_.memory().ToHost(state_.slots(bucket), count, slots.data()));
  }
  PAWL_RETURN_IF_ERROR(group_.Await(group_.Broadcast(slots.data(), count, newest.source)));
  if (!newest.takes) return absl::OkStatus();
  change = [this, bucket, slots = std::move(slots)] {
    return state_.memory().FromHost(slots.data(), slots.size(), state_.slots(bucket));
  };
  return absl::OkStatus();
}

absl::Status StateExchange::ReceiveShares(size_t bucket, const Newest& newest,
                                          int64_t& steps_before,
                                          std::function<absl::Status()>& change) {
  std::vector<std::pair<DenseRange, std::vector<float>>> taken;
  for (const SlotShares::Source& source : shares_->Sources(bucket, group_.size(), descriptions_)) {
    std::vector<float> packed(source.range.size() * shares_->SlotsPerElement(bucket));
    if (source.place == group_.place()) packed = shares_->PackSource(bucket, source);
    PAWL_RETURN_IF_ERROR(
        group_.Await(group_.Broadcast(packed.data(), packed.size(), source.place)));
    steps_before = std::max(steps_before, newest.version - source.version);
    if (!shares_->Has(bucket, source)) taken.emplace_back(source.range, std::move(packed));
  }
  change = [this, bucket, taken = std::move(taken)] {
    for (const auto& [range, packed] : taken) shares_->Unpack(bucket, range, packed.data());
    shares_->SetWhole(bucket);
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

absl::Status StateExchange::CountLostSteps(uint64_t earliest) {
  const uint64_t steps = *state_.steps();
  if (steps >= earliest) return absl::OkStatus();
  state_.set_lost_steps(state_.lost_steps() + earliest - steps);
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    if (state_.versions()[b] < static_cast<int64_t>(earliest))
      PAWL_RETURN_IF_ERROR(state_.Relabel(b, earliest));
  }
  return absl::OkStatus();
}

}  // namespace pawl
