#include "worker/data/sampler.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/permutation.h"

namespace pawl {
namespace {

absl::Status CheckBetween1And(uint64_t limit, uint64_t value, absl::string_view name) {
  if (value >= 1 && value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be between 1 and ", limit));
}

}  // namespace

SampleRange ShareOf(uint64_t size, uint32_t rank, uint32_t parts) {
  return {size * rank / parts, size * (uint64_t{rank} + 1) / parts};
}

absl::StatusOr<Sampler> Sampler::Create(const Options& options) {
  PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxSamples, options.samples, "the number of samples"));
  PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxBatchSize, options.batch_size, "batch_size"));
  PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxRanks, options.logical_workers, "logical_workers"));
  return Sampler(options);
}

Sampler::Sampler(const Options& options)
    : options_(options),
      steps_per_epoch_((options.samples + options.batch_size - 1) / options.batch_size) {}

SamplePosition Sampler::PositionOf(uint64_t job_step) const {
  return {job_step / steps_per_epoch_, job_step % steps_per_epoch_};
}

uint64_t Sampler::GlobalSize(uint64_t step) const {
  return std::min(options_.batch_size, options_.samples - step * options_.batch_size);
}

SampleRange Sampler::PositionsOf(uint64_t step, uint32_t rank) const {
  const SampleRange share = ShareOf(GlobalSize(step), rank, options_.logical_workers);
  const uint64_t first = step * options_.batch_size;
  return {first + share.begin, first + share.end};
}

uint64_t Sampler::SamplesBefore(uint64_t job_step, uint32_t rank) const {
  // All steps of an epoch but the last have the same size.
  const SamplePosition position = PositionOf(job_step);
  const uint64_t each = PositionsOf(0, rank).size();
  const uint64_t last = PositionsOf(steps_per_epoch_ - 1, rank).size();
  const uint64_t before_last = steps_per_epoch_ - 1;
  return position.epoch * (before_last * each + last) + position.step * each;
}

void Sampler::Indices(const SamplePosition& position, uint32_t rank,
                      std::vector<uint64_t>* indices) const {
  const SampleRange positions = PositionsOf(position.step, rank);
  indices->resize(positions.size());
  if (options_.keep_order) {
    std::iota(indices->begin(), indices->end(), positions.begin);
    return;
  }
  const Permutation order(options_.samples, options_.seed, position.epoch);
  order.Fill(positions.begin, positions.size(), indices->data());
}

}  // namespace pawl
