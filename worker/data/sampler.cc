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

void EpochSteps::ChangeAt(uint64_t epoch, uint64_t steps) {
  phases_.push_back({epoch, FirstStepOf(epoch), steps});
}

const EpochSteps::Phase& EpochSteps::PhaseOf(uint64_t epoch) const {
  size_t phase = phases_.size() - 1;
  while (phases_[phase].first_epoch > epoch) --phase;
  return phases_[phase];
}

uint64_t EpochSteps::FirstStepOf(uint64_t epoch) const {
  const Phase& phase = PhaseOf(epoch);
  return phase.first_step + (epoch - phase.first_epoch) * phase.steps_per_epoch;
}

SamplePosition EpochSteps::PositionOf(uint64_t job_step) const {
  size_t phase = phases_.size() - 1;
  while (phases_[phase].first_step > job_step) --phase;
  const uint64_t step = job_step - phases_[phase].first_step;
  const uint64_t each = phases_[phase].steps_per_epoch;
  return {phases_[phase].first_epoch + step / each, step % each};
}

SampleRange ShareOf(uint64_t size, uint32_t rank, uint32_t parts) {
  return {size * rank / parts, size * (uint64_t{rank} + 1) / parts};
}

absl::StatusOr<Sampler> Sampler::Create(const Options& options) {
  PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxSamples, options.samples, "the number of samples"));
  PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxBatchSize, options.batch_size, "batch_size"));
  PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxRanks, options.logical_workers, "logical_workers"));
  for (const SamplerChange& change : options.changes)
    PAWL_RETURN_IF_ERROR(CheckBetween1And(kMaxBatchSize, change.batch_size, "batch_size"));
  return Sampler(options);
}

Sampler::Options Sampler::OptionsOf(const Job& job, uint64_t samples, uint32_t logical_workers) {
  Options options;
  options.samples = samples;
  options.batch_size = job.batch_size();
  options.logical_workers = logical_workers;
  options.seed = job.seed();
  options.keep_order = job.data().keep_order();
  for (const BatchSizeChange& change : job.batch_size_changes())
    options.changes.push_back({change.epoch(), change.batch_size()});
  return options;
}

Sampler::Sampler(const Options& options)
    : options_(options), epochs_((options.samples + options.batch_size - 1) / options.batch_size) {
  for (const SamplerChange& change : options.changes) {
    epochs_.ChangeAt(change.epoch, (options.samples + change.batch_size - 1) / change.batch_size);
  }
}

uint64_t Sampler::BatchSizeOf(uint64_t epoch) const {
  uint64_t size = options_.batch_size;
  for (const SamplerChange& change : options_.changes) {
    if (change.epoch > epoch) break;
    size = change.batch_size;
  }
  return size;
}

uint64_t Sampler::GlobalSize(const SamplePosition& position) const {
  const uint64_t batch_size = BatchSizeOf(position.epoch);
  return std::min(batch_size, options_.samples - position.step * batch_size);
}

SampleRange Sampler::PositionsOf(const SamplePosition& position, uint32_t rank) const {
  const SampleRange share = ShareOf(GlobalSize(position), rank, options_.logical_workers);
  const uint64_t first = position.step * BatchSizeOf(position.epoch);
  return {first + share.begin, first + share.end};
}

uint64_t Sampler::SamplesBefore(uint64_t job_step, uint32_t rank) const {
  // For each phase between two changes. All steps of an epoch but the last have the same size.
  const SamplePosition position = epochs_.PositionOf(job_step);
  uint64_t samples = 0;
  for (size_t phase = 0; phase <= options_.changes.size(); ++phase) {
    const uint64_t first = phase == 0 ? 0 : options_.changes[phase - 1].epoch;
    if (first > position.epoch) break;
    const uint64_t end = phase < options_.changes.size()
                             ? std::min(options_.changes[phase].epoch, position.epoch)
                             : position.epoch;
    const uint64_t before_last = epochs_.StepsOf(first) - 1;
    samples += (end - first) * (before_last * PositionsOf({first, 0}, rank).size() +
                                PositionsOf({first, before_last}, rank).size());
  }
  return samples + position.step * PositionsOf({position.epoch, 0}, rank).size();
}

void Sampler::Indices(const SamplePosition& position, uint32_t rank,
                      std::vector<uint64_t>* indices) const {
  const SampleRange positions = PositionsOf(position, rank);
  indices->resize(positions.size());
  if (options_.keep_order) {
    std::iota(indices->begin(), indices->end(), positions.begin);
    return;
  }
  const Permutation order(options_.samples, options_.seed, position.epoch);
  order.Fill(positions.begin, positions.size(), indices->data());
}

}  // namespace pawl
