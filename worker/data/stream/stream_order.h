// The order in which streamed samples are used.
#ifndef PAWL_WORKER_DATA_STREAM_STREAM_ORDER_H_
#define PAWL_WORKER_DATA_STREAM_STREAM_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/data/sampler.h"

namespace pawl {

// The order of the units of an epoch. A unit is what is moved as a whole: a block, or the blocks of
// one restart point. Their samples, end to end, have the epoch's positions 0 to N - 1. Immutable.
class EpochOrder {
 public:
  // `units`: the samples of each unit.
  EpochOrder(const std::vector<uint64_t>& units, uint64_t seed, uint64_t epoch, bool keep_order);

  struct Place {
    size_t unit;      // by the data's order
    uint64_t sample;  // in the unit
    uint64_t left;    // samples of the unit from this one on
  };
  // REQUIRES: position < N.
  Place At(uint64_t position) const;

 private:
  std::vector<size_t> order_;
  // By place in the order: the position of the unit's first sample; then N.
  std::vector<uint64_t> begins_;
};

// Whole steps of one rank in one epoch.
struct StreamWindow {
  uint64_t epoch = 0;
  uint64_t number = 0;  // in the epoch
  uint64_t first_step = 0;
  uint64_t end_step = 0;

  friend bool operator==(const StreamWindow&, const StreamWindow&) = default;
};

// Where the samples of a rank's steps are: a pure function of the sampler's options, the units and
// the size of windows. Sizes of steps and shares are the sampler's.
//
// 1. Each rank has a contiguous range of an epoch's positions, as long as its shares of all steps.
//    With keep_order it has the positions that the sampler says.
// 2. A window has the rank's samples of as many steps as fit into window_samples, at least one.
// 3. Within a window samples are permuted, and each step takes the next ones.
//
// Immutable. The sampler outlives it.
class StreamOrder {
 public:
  StreamOrder(const Sampler& sampler, uint64_t window_samples)
      : sampler_(sampler), window_samples_(window_samples) {}

  StreamWindow WindowOf(const SamplePosition& position) const;
  // The window after `window`, which may be in the next epoch.
  StreamWindow Next(const StreamWindow& window) const;

  // The positions of the window's samples, in ascending order. Their total is the window's size.
  std::vector<SampleRange> PositionsOf(const StreamWindow& window, uint32_t rank) const;

  // Replaces *indices with the samples of a step, as indices of the window's samples. REQUIRES: the
  // step of its epoch is in the window.
  void Indices(const StreamWindow& window, uint64_t step, uint32_t rank,
               std::vector<uint64_t>* indices) const;

 private:
  // The rank's first position in an epoch, if its positions are contiguous.
  uint64_t BeginOf(uint64_t epoch, uint32_t rank) const;
  uint64_t StepsPerWindow(uint64_t epoch) const;
  uint64_t SizeOf(const StreamWindow& window, uint32_t rank) const;

  const Sampler& sampler_;
  const uint64_t window_samples_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_STREAM_STREAM_ORDER_H_
