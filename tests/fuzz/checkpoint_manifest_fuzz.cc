// Checkpoint manifests. The first byte selects whether length and checksum are corrected; the rest
// is the file.
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/testing/fault_env.h"
#include "google/protobuf/stubs/logging.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

void Seal(std::string& bytes) {
  constexpr size_t kHeaderBytes = 16;
  bytes.insert(0, "PAWLCKP\n\x01\0\0\0\0\0\0\0", kHeaderBytes);
  PutNumber(bytes.data() + 12, static_cast<uint32_t>(bytes.size() - kHeaderBytes));
  const uint32_t crc = Crc32c(0, bytes.data(), bytes.size());
  bytes.append(4, '\0');
  PutNumber(bytes.data() + bytes.size() - 4, crc);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silencer;
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Seal(bytes);
  FaultEnv env(1);
  const std::string name = CheckpointStore::NameOf("job", 9);
  const std::string folder = absl::StrCat("/checkpoints/", name);
  FuzzCheck(env.MakeFolder("/checkpoints").ok() && env.MakeFolder(folder).ok(), "folders");
  env.SetContents(absl::StrCat(folder, "/MANIFEST"), bytes);
  CheckpointStore store(env, "/checkpoints");
  const auto manifest = store.ReadManifest(name);
  const auto listing = store.List("");
  FuzzCheck(listing.ok() && listing->complete.size() + listing->damaged.size() == 1,
            "the checkpoint is complete or damaged");
  FuzzCheck(listing->complete.size() == (manifest.ok() ? 1u : 0u), "listing and manifest agree");
  if (!manifest.ok()) {
    FuzzCheck(absl::IsDataLoss(manifest.status()) &&
                  absl::StrContains(manifest.status().message(), "/MANIFEST") &&
                  absl::StrContains(manifest.status().message(), "offset"),
              "the refusal names file and offset");
    return 0;
  }
  FuzzCheck(manifest->job_name() == "job" && manifest->step() == 9 && manifest->parts_size() > 0,
            "the manifest matches its folder");
  // All parts are missing.
  const absl::Status verified = store.Verify(name);
  FuzzCheck(absl::IsDataLoss(verified), "missing parts are detected");
  FuzzCheck(!store.OpenPart(*manifest, 0).ok(), "a missing part is not opened");
  return 0;
}

}  // namespace pawl
