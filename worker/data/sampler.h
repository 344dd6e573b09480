// Which samples each logical worker trains on in each step.
#ifndef PAWL_WORKER_DATA_SAMPLER_H_
#define PAWL_WORKER_DATA_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace pawl {

// A job's position in its data; sufficient to continue from there.
struct SamplePosition {
  uint64_t epoch = 0;
  uint64_t step = 0;  // in the epoch

  friend bool operator==(const SamplePosition&, const SamplePosition&) = default;
};

// How the steps of a job are divided into epochs, whose number of steps changes with the batch
// size. A value type.
class EpochSteps {
 public:
  // Every epoch has this many steps. REQUIRES: steps > 0.
  explicit EpochSteps(uint64_t steps) : phases_{{.steps_per_epoch = steps}} {}

  // From `epoch` on, each has this many steps. REQUIRES: both are above 0; epochs ascend.
  void ChangeAt(uint64_t epoch, uint64_t steps);

  uint64_t StepsOf(uint64_t epoch) const { return PhaseOf(epoch).steps_per_epoch; }
  // The number of steps of the epochs before this one.
  uint64_t FirstStepOf(uint64_t epoch) const;
  // The position of step number `job_step` of the job, from 0.
  SamplePosition PositionOf(uint64_t job_step) const;

 private:
  struct Phase {
    uint64_t first_epoch = 0;
    uint64_t first_step = 0;  // of the job
    uint64_t steps_per_epoch = 0;
  };

  const Phase& PhaseOf(uint64_t epoch) const;

  std::vector<Phase> phases_;
};

// The half-open range [begin, end).
struct SampleRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// Part `rank` of `size` items divided into `parts` contiguous pieces, whose sizes differ by at most
// one: [size * rank / parts, size * (rank + 1) / parts). REQUIRES: rank < parts; size <= 2^32.
SampleRange ShareOf(uint64_t size, uint32_t rank, uint32_t parts);

// From an epoch on, another batch size.
struct SamplerChange {
  uint64_t epoch = 0;
  uint64_t batch_size = 0;
};

// A pure function of (seed, epoch, step, rank), so that the successor of a dead worker, and a job
// that continues from a checkpoint, use the same samples.
//
// An epoch visits every sample once, in an order of its own (the file's order with keep_order).
// Step s of an epoch uses the positions [s * batch_size, min((s + 1) * batch_size, samples)) of
// that order. The logical workers use contiguous shares of them in rank order. Sizes of shares
// differ by at most one, and in an epoch's last step a share may be empty.
//
// Immutable, hence thread-safe.
class Sampler {
 public:
  struct Options {
    uint64_t samples = 0;
    uint64_t batch_size = 0;  // of all logical workers together
    uint32_t logical_workers = 1;
    uint64_t seed = 0;
    bool keep_order = false;
    // In ascending order of their epochs, which are above 0.
    std::vector<SamplerChange> changes = {};
  };

  // The options for the job's training data of this many samples.
  static Options OptionsOf(const Job& job, uint64_t samples, uint32_t logical_workers);
  // INVALID_ARGUMENT for a number that is 0 or above its limit (kMaxSamples, kMaxBatchSize,
  // kMaxRanks). REQUIRES: the changes' epochs ascend.
  static absl::StatusOr<Sampler> Create(const Options& options);

  // The order's arithmetic stays below 2^62, that of a share (of a batch) below 2^64.
  static constexpr uint64_t kMaxSamples = uint64_t{1} << 40;
  static constexpr uint64_t kMaxBatchSize = uint64_t{1} << 24;
  static constexpr uint32_t kMaxRanks = 1 << 16;

  const Options& options() const { return options_; }
  const EpochSteps& epochs() const { return epochs_; }
  uint64_t BatchSizeOf(uint64_t epoch) const;

  // In all functions below, position.step < epochs().StepsOf(position.epoch).

  // The samples of all logical workers in a step, by which the sum of their gradients is divided.
  // At least 1.
  uint64_t GlobalSize(const SamplePosition& position) const;

  // The positions in the epoch's order that `rank` uses. REQUIRES: rank < logical_workers.
  SampleRange PositionsOf(const SamplePosition& position, uint32_t rank) const;

  // The number of samples that `rank` uses in all steps of the job before `job_step`. REQUIRES:
  // rank < logical_workers.
  uint64_t SamplesBefore(uint64_t job_step, uint32_t rank) const;

  // Replaces *indices with the samples that `rank` uses, in the order of the batch. REQUIRES: rank
  // < logical_workers.
  void Indices(const SamplePosition& position, uint32_t rank, std::vector<uint64_t>* indices) const;

 private:
  explicit Sampler(const Options& options);

  Options options_;
  EpochSteps epochs_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_SAMPLER_H_
