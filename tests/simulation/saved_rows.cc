#include "tests/simulation/saved_rows.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/partition_options.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "server/storage/snapshot/partition_file.h"

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

float SavedRows::ValueOf(const SimLedger::Cell& cell, uint32_t table) const {
  float value = 0;
  taken_.at(cell.partition)
      .partition.Pull(table, ByteView(reinterpret_cast<const char*>(&cell.key), sizeof(cell.key)),
                      reinterpret_cast<char*>(&value));
  return value;
}

std::string SavedRows::Mistake(const std::vector<SimLedger::Expectation>& expectations,
                               uint32_t table) const {
  for (const SimLedger::Expectation& expected : expectations) {
    const SimLedger::Cell& cell = expected.cell;
    const auto taken = taken_.find(cell.partition);
    if (taken == taken_.end()) return absl::StrCat("partition ", cell.partition, " is missing");
    const float value = ValueOf(cell, table);
    if (expected.Allows(value)) continue;
    return absl::StrCat("push ", cell.number, " of sender ", cell.sender, " in partition ",
                        cell.partition, " has ", value, ", must be ", expected.least, " or ",
                        expected.most, ": ", expected.why);
  }
  return "";
}

absl::StatusOr<SavedRows> CheckpointRecord::Read(const CheckpointManifest& manifest) const {
  const CheckpointStore store(files_, kCheckpoints);
  const PartitionOptions options = OptionsToLoad(schedule_.ToJob());
  SavedRows rows;
  for (uint32_t index = 0; index < schedule_.partitions; ++index) {
    PAWL_ASSIGN_OR_RETURN(const auto file, store.OpenPart(manifest, index));
    PAWL_ASSIGN_OR_RETURN(Partition partition,
                          LoadPartitionFile(*file, PartitionLoader(index, options)));
    rows.Set(0, std::move(partition));
  }
  return rows;
}

std::string CheckpointRecord::OnCompleted(const CheckpointManifest& manifest) {
  const std::pair<uint64_t, bool> key(manifest.step(), manifest.is_final());
  const auto begun = begun_.find(key);
  if (begun == begun_.end()) return "it was never begun";
  const absl::StatusOr<SavedRows> rows = Read(manifest);
  if (!rows.ok()) return rows.status().ToString();
  const auto fate_of = [&](uint32_t sender, uint64_t number, bool) {
    if (ledger_.IsRank(sender) && schedule_.consistency.mode() == SYNC) {
      return number < manifest.step() ? SimLedger::Fate::kApplied : SimLedger::Fate::kNotApplied;
    }
    return begun->second.contains({sender, number}) ? SimLedger::Fate::kApplied
                                                    : SimLedger::Fate::kUnknown;
  };
  std::string mistake = rows->Mistake(ledger_.Expect(fate_of), table_);
  if (!mistake.empty()) return mistake;
  const bool is_new = completed_.insert_or_assign(key, manifest).second;
  periodic_ += is_new && !manifest.is_final();
  repeated_ends_ += !is_new;
  return "";
}

std::string CheckpointRecord::CheckKept() const {
  const auto listing = CheckpointStore(files_, kCheckpoints).List("");
  if (!listing.ok()) return listing.status().ToString();
  if (!listing->damaged.empty()) return listing->damaged.front().ToString();
  for (const auto& [key, manifest] : completed_) {
    bool is_listed = false;
    uint32_t newer = 0;
    for (const CheckpointListing::Entry& entry : listing->complete) {
      const std::pair<uint64_t, bool> there(entry.manifest.step(), entry.manifest.is_final());
      is_listed |= there == key;
      newer += there > key;
    }
    if (newer >= schedule_.checkpoints_kept) continue;
    if (!is_listed) return absl::StrCat(CheckpointStore::NameOf(manifest), " has disappeared");
    if (const auto rows = Read(manifest); !rows.ok()) return rows.status().ToString();
  }
  return "";
}

absl::StatusOr<CheckpointRecord::Start> CheckpointRecord::StartFromOne(SeededRandom& random) {
  PAWL_ASSIGN_OR_RETURN(const CheckpointListing listing,
                        CheckpointStore(files_, kCheckpoints).List(""));
  if (listing.complete.empty()) return absl::NotFoundError("there is no checkpoint");
  const CheckpointListing::Entry& entry = listing.complete[random.Below(listing.complete.size())];
  Start start{JoinPath(kCheckpoints, entry.name), entry.manifest.step(), {}};
  PAWL_ASSIGN_OR_RETURN(start.rows, Read(entry.manifest));
  begun_.clear();
  completed_.clear();
  return start;
}

}  // namespace pawl
