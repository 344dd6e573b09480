#include "tests/simulation/saved_rows.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/partition_options.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

}  // namespace

PartitionOptions OptionsToLoad(const Job& job) {
  return PartitionOptionsOf(job, std::numeric_limits<uint32_t>::max());
}

std::string SavedRows::TakeFrom(const DataPlane& plane, uint64_t epoch, uint64_t step,
                                const Job& job) {
  const auto primaries = plane.Primaries(epoch);
  if (!primaries.ok()) return primaries.status().ToString();
  for (const RecoveredReplica& primary : *primaries) {
    absl::StatusOr<TakenCut> cut = plane.TakeCutNow(primary.partition(), step);
    if (!cut.ok()) return cut.status().ToString();
    std::string bytes;
    while (!cut->snapshot.at_end()) cut->snapshot.Read(kPieceBytes, bytes);
    auto partition = LoadPartition(primary.partition(), OptionsToLoad(job),
                                   ByteView(bytes.data(), bytes.size()));
    if (!partition.ok()) return partition.status().ToString();
    Set(epoch, *std::move(partition));
  }
  return "";
}

void SavedRows::Set(uint64_t epoch, Partition partition) {
  const uint32_t index = partition.index();
  if (const auto taken = taken_.find(index); taken != taken_.end()) {
    if (taken->second.epoch > epoch) return;
    taken_.erase(taken);
  }
  taken_.emplace(index, Taken{epoch, std::move(partition)});
}

std::string SavedRows::Mistake(const std::vector<SimLedger::Expectation>& expectations,
                               uint32_t table) const {
  for (const SimLedger::Expectation& expected : expectations) {
    const SimLedger::Cell& cell = expected.cell;
    const auto taken = taken_.find(cell.partition);
    if (taken == taken_.end()) return absl::StrCat("partition ", cell.partition, " is missing");
    float value = 0;
    taken->second.partition.Pull(
        table, ByteView(reinterpret_cast<const char*>(&cell.key), sizeof(cell.key)),
        reinterpret_cast<char*>(&value));
    if (expected.Allows(value)) continue;
    return absl::StrCat("push ", cell.number, " of sender ", cell.sender, " in partition ",
                        cell.partition, " has ", value, ", must be ", expected.least, " or ",
                        expected.most, ": ", expected.why);
  }
  return "";
}

}  // namespace pawl
