#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/storage/checkpoint/checkpoint_layout.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

absl::Status CheckpointStore::Verify(const std::string& name, VerifyProgress* progress) const {
  absl::Status status = VerifyOne(name, progress);
  const auto parsed = ParseCheckpointName(name);
  if (!absl::IsDataLoss(status) || !parsed.has_value()) return status;
  PAWL_ASSIGN_OR_RETURN(const CheckpointListing listing, List(parsed->job_name));
  for (const CheckpointListing::Entry& entry : listing.complete) {
    if (TimeOf(entry.manifest) < parsed->time && VerifyOne(entry.name, progress).ok()) {
      return absl::DataLossError(absl::StrCat(status.message(), "; the checkpoint before it, ",
                                              entry.name, ", is whole: use that one"));
    }
  }
  return absl::DataLossError(
      absl::StrCat(status.message(), "; no checkpoint before it in ", folder_, " is whole"));
}

absl::Status CheckpointStore::VerifyOne(const std::string& name, VerifyProgress* progress) const {
  PAWL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(name));
  VerifyProgress own;
  if (progress == nullptr) progress = &own;
  progress->parts_done = 0;
  progress->bytes_done = 0;
  progress->parts = static_cast<uint64_t>(manifest.parts_size());
  uint64_t bytes = 0;
  for (const CheckpointPart& part : manifest.parts()) bytes += part.bytes();
  progress->bytes = bytes;
  // By part, so that the error does not depend on which thread finishes first.
  std::vector<absl::Status> statuses(static_cast<size_t>(manifest.parts_size()));
  std::atomic<int> next = 0;
  std::atomic<bool> failed = false;
  const auto verify = [&] {
    for (int i = next++; i < manifest.parts_size() && !failed; i = next++) {
      statuses[static_cast<size_t>(i)] =
          VerifyPart(manifest, manifest.parts(i), [] { return true; });
      if (!statuses[static_cast<size_t>(i)].ok()) failed = true;
      ++progress->parts_done;
      progress->bytes_done += manifest.parts(i).bytes();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < std::min(kVerifyThreads, manifest.parts_size()); ++i)
    threads.emplace_back(verify);
  verify();
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& status : statuses) PAWL_RETURN_IF_ERROR(std::move(status));
  return absl::OkStatus();
}

absl::Status CheckpointStore::VerifyPart(const CheckpointManifest& manifest,
                                         const CheckpointPart& part,
                                         absl::FunctionRef<bool()> should_continue) const {
  const std::string path = PathOf(NameOf(manifest), part.file());
  const auto reader = BlockFileReader::Open(env_, path,
                                            {BlockFileKind::kCheckpointPart, manifest.job_id(),
                                             part.partition(), part.log_index(), manifest.step()});
  if (absl::IsNotFound(reader.status())) return DamagedAt(path, 0, "the file is missing");
  PAWL_RETURN_IF_ERROR(reader.status());
  while (true) {
    if (!should_continue())
      return absl::CancelledError(absl::StrCat("reading ", path, " was interrupted"));
    PAWL_ASSIGN_OR_RETURN(const absl::string_view block, (*reader)->NextBlock());
    if (block.empty()) break;
  }
  const BlockFileInfo& info = (*reader)->info();
  if (info.file_bytes == part.bytes() && info.crc32c == part.crc32c()) return absl::OkStatus();
  return DamagedAt(path, 0, "it is whole, but not the file that the manifest names");
}

}  // namespace pawl
