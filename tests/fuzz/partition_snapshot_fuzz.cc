// Partition snapshots. The first byte selects the job, the second the fragment size; the rest is
// the snapshot, in either format. An accepted snapshot must be saved as the same state, and the
// partition must keep working.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

PartitionOptions Options(uint8_t choice) {
  PartitionOptions options;
  options.job_seed = 7;
  options.partitions = 1;
  options.logical_workers = 2;
  options.consistency.set_mode(choice % 4 < 2 ? SYNC : choice % 4 == 2 ? BOUNDED : ASYNC);
  options.consistency.set_backup_workers(choice % 4 == 1);
  options.consistency.set_staleness(choice % 4 == 2);
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Suppresses a message for every name that is not UTF-8.
  static const google::protobuf::LogSilencer silencer;
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  // Each fragment has its own memory, so that reads beyond its end are detected.
  const size_t fragment_size = 1 + data[1];
  std::vector<std::unique_ptr<char[]>> memory;
  ByteView view;
  for (size_t begin = 0; begin < bytes.size(); begin += fragment_size) {
    const size_t count = std::min(fragment_size, bytes.size() - begin);
    memory.emplace_back(new char[count]);
    bytes.copy(memory.back().get(), count, begin);
    view.Append(memory.back().get(), count);
  }
  const PartitionOptions options = Options(data[0]);
  auto partition = LoadPartition(0, options, view);
  if (!partition.ok()) {
    Check(absl::IsDataLoss(partition.status()) || absl::IsInvalidArgument(partition.status()),
          "the refusal has an expected code");
    return 0;
  }
  std::string saved;
  SavePartition(*partition, [&](const void* run, size_t count) {
    saved.append(static_cast<const char*>(run), count);
  });
  ByteView again;
  again.Append(saved.data(), saved.size());
  const auto reloaded = LoadPartition(0, options, again);
  Check(reloaded.ok(), "the saved state can be loaded");
  Check(Fingerprint(*reloaded) == Fingerprint(*partition), "the states are equal");
  // Ends the step. This must terminate in any state.
  for (uint32_t rank = 0; rank < options.logical_workers; ++rank) {
    const uint64_t incarnation = uint64_t{1} << 62;
    const auto clock = partition->TakeOver(rank, incarnation);
    if (!clock.ok()) continue;
    (void)partition->EndStep(Sender{Sender::Kind::kLogicalWorker, rank, incarnation, *clock},
                             std::nullopt);
  }
  partition->KeepBest(uint64_t{1} << 62);
  partition->RestoreBest();
  Fingerprint(*partition);
  return 0;
}

}  // namespace pawl
