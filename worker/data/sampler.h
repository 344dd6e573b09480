// Which samples each logical worker trains on in each step.
#ifndef PAWL_WORKER_DATA_SAMPLER_H_
#define PAWL_WORKER_DATA_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace pawl {

// A job's position in its data; sufficient to continue from there.
struct SamplePosition {
  uint64_t epoch = 0;
  uint64_t step = 0;  // in the epoch: 0 .. steps_per_epoch() - 1

  friend bool operator==(const SamplePosition&, const SamplePosition&) = default;
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

// The samples of an evaluation file that `rank` of `ranks` evaluates, in the file's order.
inline SampleRange EvaluationShard(uint64_t samples, uint32_t rank, uint32_t ranks) {
  return ShareOf(samples, rank, ranks);
}

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
  };

  // INVALID_ARGUMENT for a number that is 0 or above its limit (kMaxSamples, kMaxBatchSize,
  // kMaxRanks).
  static absl::StatusOr<Sampler> Create(const Options& options);

  // The order's arithmetic stays below 2^62, that of a share (of a batch) below 2^64.
  static constexpr uint64_t kMaxSamples = uint64_t{1} << 40;
  static constexpr uint64_t kMaxBatchSize = uint64_t{1} << 24;
  static constexpr uint32_t kMaxRanks = 1 << 16;

  const Options& options() const { return options_; }
  uint64_t steps_per_epoch() const { return steps_per_epoch_; }

  // The position of step number `job_step` of the job, from 0.
  SamplePosition PositionOf(uint64_t job_step) const;

  // The samples of all logical workers in step `step` of any epoch, by which the sum of their
  // gradients is divided. At least 1. REQUIRES: step < steps_per_epoch().
  uint64_t GlobalSize(uint64_t step) const;

  // The positions in the epoch's order that `rank` uses. REQUIRES: step < steps_per_epoch(); rank <
  // logical_workers.
  SampleRange PositionsOf(uint64_t step, uint32_t rank) const;

  // The number of samples that `rank` uses in all steps of the job before `job_step`. REQUIRES:
  // rank < logical_workers.
  uint64_t SamplesBefore(uint64_t job_step, uint32_t rank) const;

  // Replaces *indices with the samples that `rank` uses, in the order of the batch. REQUIRES:
  // position.step < steps_per_epoch(); rank < logical_workers.
  void Indices(const SamplePosition& position, uint32_t rank, std::vector<uint64_t>* indices) const;

 private:
  explicit Sampler(const Options& options);

  Options options_;
  uint64_t steps_per_epoch_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_SAMPLER_H_
