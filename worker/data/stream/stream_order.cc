#include "worker/data/stream/stream_order.h"

#include <algorithm>
#include <numeric>

#include "client_lib/base/partitioner.h"
#include "worker/data/permutation.h"

namespace pawl {
namespace {

// Streams of the permutations of blocks and of windows, apart from each other and from those of
// data in memory.
constexpr uint64_t kBlockStream = 0x626c6f636b730000;
constexpr uint64_t kWindowStream = 0x77696e646f770000;

uint64_t StreamOf(uint64_t kind, uint64_t epoch, uint64_t rank, uint64_t window) {
  return Mix64(Mix64(Mix64(kind + epoch) + rank) + window);
}

}  // namespace

EpochOrder::EpochOrder(const std::vector<uint64_t>& units, uint64_t seed, uint64_t epoch,
                       bool keep_order)
    : order_(units.size()) {
  if (keep_order) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  } else {
    const Permutation permutation(units.size(), seed, StreamOf(kBlockStream, epoch, 0, 0));
    for (size_t i = 0; i < units.size(); ++i) order_[i] = static_cast<size_t>(permutation[i]);
  }
  begins_.reserve(units.size() + 1);
  uint64_t begin = 0;
  for (const size_t unit : order_) {
    begins_.push_back(begin);
    begin += units[unit];
  }
  begins_.push_back(begin);
}

EpochOrder::Place EpochOrder::At(uint64_t position) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), position);
  const auto place = static_cast<size_t>(after - begins_.begin()) - 1;
  return {order_[place], position - begins_[place], *after - position};
}

uint64_t StreamOrder::StepsPerWindow(uint64_t epoch) const {
  const uint64_t ranks = sampler_.options().logical_workers;
  const uint64_t share = (sampler_.BatchSizeOf(epoch) + ranks - 1) / ranks;
  return std::max<uint64_t>(window_samples_ / share, 1);
}

StreamWindow StreamOrder::WindowOf(const SamplePosition& position) const {
  StreamWindow window;
  window.epoch = position.epoch;
  const uint64_t steps_per_window = StepsPerWindow(position.epoch);
  window.number = position.step / steps_per_window;
  window.first_step = window.number * steps_per_window;
  window.end_step =
      std::min(window.first_step + steps_per_window, sampler_.epochs().StepsOf(position.epoch));
  return window;
}

StreamWindow StreamOrder::Next(const StreamWindow& window) const {
  if (window.end_step < sampler_.epochs().StepsOf(window.epoch))
    return WindowOf({window.epoch, window.end_step});
  return WindowOf({window.epoch + 1, 0});
}

uint64_t StreamOrder::BeginOf(uint64_t epoch, uint32_t rank) const {
  const uint32_t ranks = sampler_.options().logical_workers;
  const uint64_t last_step = sampler_.epochs().StepsOf(epoch) - 1;
  return last_step * ShareOf(sampler_.GlobalSize({epoch, 0}), rank, ranks).begin +
         ShareOf(sampler_.GlobalSize({epoch, last_step}), rank, ranks).begin;
}

uint64_t StreamOrder::SizeOf(const StreamWindow& window, uint32_t rank) const {
  // All steps of an epoch but the last have the same size.
  const uint64_t before_last = window.end_step - 1 - window.first_step;
  return before_last * sampler_.PositionsOf({window.epoch, 0}, rank).size() +
         sampler_.PositionsOf({window.epoch, window.end_step - 1}, rank).size();
}

std::vector<SampleRange> StreamOrder::PositionsOf(const StreamWindow& window, uint32_t rank) const {
  std::vector<SampleRange> ranges;
  if (!sampler_.options().keep_order) {
    const uint64_t begin = BeginOf(window.epoch, rank) +
                           window.first_step * sampler_.PositionsOf({window.epoch, 0}, rank).size();
    const uint64_t size = SizeOf(window, rank);
    if (size > 0) ranges.push_back({begin, begin + size});
    return ranges;
  }
  for (uint64_t step = window.first_step; step < window.end_step; ++step) {
    const SampleRange range = sampler_.PositionsOf({window.epoch, step}, rank);
    if (range.size() == 0) continue;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

void StreamOrder::Indices(const StreamWindow& window, uint64_t step, uint32_t rank,
                          std::vector<uint64_t>* indices) const {
  indices->resize(sampler_.PositionsOf({window.epoch, step}, rank).size());
  if (indices->empty()) return;
  const uint64_t first =
      step == window.first_step
          ? 0
          : (step - window.first_step) *
                sampler_.PositionsOf({window.epoch, window.first_step}, rank).size();
  if (sampler_.options().keep_order) {
    std::iota(indices->begin(), indices->end(), first);
    return;
  }
  const Permutation order(SizeOf(window, rank), sampler_.options().seed,
                          StreamOf(kWindowStream, window.epoch, rank, window.number));
  order.Fill(first, indices->size(), indices->data());
}

}  // namespace pawl
