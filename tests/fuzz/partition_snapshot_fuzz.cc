// Partition snapshots. The first byte selects the job, the second the fragment size; the rest is
// the snapshot, in either format. An accepted snapshot must be saved as the same state, and the
// partition must keep working.
#include <cstdint>
#include <optional>
#include <string>

#include "client_lib/base/testing/job_specs.h"
#include "google/protobuf/stubs/logging.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

PartitionOptions Options(uint8_t choice) {
  const ConsistencyMode mode = choice % 4 < 2 ? SYNC : choice % 4 == 2 ? BOUNDED : ASYNC;
  return {.job_seed = 7,
          .partitions = 1,
          .logical_workers = 2,
          .consistency = ConsistencyOf(mode, choice % 4 == 2, choice % 4 == 1),
          .clip_global_norm = choice % 4 == 0 && choice >= 128 ? 1.0f : 0.0f};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Suppresses a message for every name that is not UTF-8.
  static const google::protobuf::LogSilencer silencer;
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Fragments fragments(bytes, 1 + data[1]);
  const PartitionOptions options = Options(data[0]);
  auto partition = LoadPartition(0, options, fragments.view());
  if (!partition.ok()) {
    FuzzCheck(absl::IsDataLoss(partition.status()) || absl::IsInvalidArgument(partition.status()),
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
  FuzzCheck(reloaded.ok(), "the saved state can be loaded");
  FuzzCheck(Fingerprint(*reloaded) == Fingerprint(*partition), "the states are equal");
  // Ends the step. This must terminate in any state.
  for (uint32_t rank = 0; rank < options.logical_workers; ++rank) {
    const uint64_t incarnation = uint64_t{1} << 62;
    const auto clock = partition->TakeOver(rank, incarnation);
    if (!clock.ok()) continue;
    (void)partition->EndStep(Sender{Sender::Kind::kLogicalWorker, rank, incarnation, *clock},
                             std::nullopt);
    (void)partition->CloseStep(Sender{Sender::Kind::kLogicalWorker, rank, incarnation, *clock},
                               0.5f);
  }
  partition->KeepBest(uint64_t{1} << 62);
  partition->RestoreBest();
  Fingerprint(*partition);
  return 0;
}

}  // namespace pawl
