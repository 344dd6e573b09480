#include "tests/simulation/sim_ledger.h"

#include <set>

#include "tests/harness/ledger.h"

namespace pawl {

std::vector<SimLedger::Cell> SimLedger::CellsOf(uint32_t sender, uint64_t number) {
  SeededRandom random(schedule_.seed ^ (uint64_t{sender} << 40) ^ number);
  std::set<uint32_t> partitions;
  for (uint64_t i = random.Between(1, 4); i > 0; --i) {
    partitions.insert(static_cast<uint32_t>(random.Below(schedule_.partitions)));
  }
  std::vector<Cell> cells;
  for (const uint32_t partition : partitions) {
    cells.push_back({sender, number, partition, LedgerKey(table_, sender, number, partition, schedule_.partitions)});
  }
  return cells;
}

float SimLedger::UnitOf(uint32_t sender) const {
  if (!IsRank(sender) || schedule_.consistency.mode() != SYNC) return 1.0f;
  return 1.0f / static_cast<float>(schedule_.ranks());
}

bool SimLedger::IsAcknowledged(uint32_t sender, uint64_t number) const {
  const auto found = sent_.find({sender, number});
  return found != sent_.end() && found->second;
}

std::optional<std::pair<uint32_t, uint64_t>> SimLedger::SomethingAcknowledged(SeededRandom& random) const {
  const uint32_t sender = schedule_.ranks() + static_cast<uint32_t>(random.Below(static_cast<uint64_t>(schedule_.clients)));
  const uint64_t number = random.Below(schedule_.pushes);
  if (!IsAcknowledged(sender, number)) return std::nullopt;
  return std::pair(sender, number);
}

}  // namespace pawl
