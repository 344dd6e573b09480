#include "scheduler/placement/partition_meter.h"

#include <cmath>

namespace pawl {

void PartitionMeter::Note(uint64_t reporter, const PartitionFigures& figures, MonotonicTime now) {
  if (figures.partition() >= partitions_.size()) return;
  Entry& entry = partitions_[figures.partition()];
  entry.load.parameter_bytes = figures.parameter_bytes();
  const double passed = Seconds(now - entry.at);
  const bool continues = entry.reporter == reporter && figures.keys_pushed() >= entry.keys_pushed &&
                         figures.keys_pulled() >= entry.keys_pulled;
  if (continues && passed <= 0) return;
  if (continues) {
    const double pushed = static_cast<double>(figures.keys_pushed() - entry.keys_pushed) / passed;
    const double pulled = static_cast<double>(figures.keys_pulled() - entry.keys_pulled) / passed;
    const double kept = std::exp2(-passed / Seconds(kLoadHalfLife));
    entry.pushed = kept * entry.pushed + (1 - kept) * pushed;
    entry.pulled = kept * entry.pulled + (1 - kept) * pulled;
    entry.weight = kept * entry.weight + (1 - kept);
    entry.load.keys_pushed = static_cast<uint64_t>(std::llround(entry.pushed / entry.weight));
    entry.load.keys_pulled = static_cast<uint64_t>(std::llround(entry.pulled / entry.weight));
  }
  entry.reporter = reporter;
  entry.keys_pushed = figures.keys_pushed();
  entry.keys_pulled = figures.keys_pulled();
  entry.at = now;
}

PartitionLoads PartitionMeter::Loads() const {
  PartitionLoads loads;
  for (const Entry& entry : partitions_) {
    if (entry.weight == 0) return {};
    loads.push_back(entry.load);
  }
  return loads;
}

}  // namespace pawl
