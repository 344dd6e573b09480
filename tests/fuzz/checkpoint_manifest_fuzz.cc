// Manifests of checkpoints: the first byte chooses whether length and checksum are made right, the
// rest is the file.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/testing/fault_env.h"
#include "google/protobuf/stubs/logging.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

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
  Check(env.MakeFolder("/checkpoints").ok() && env.MakeFolder(folder).ok(), "folders");
  env.SetContents(absl::StrCat(folder, "/MANIFEST"), bytes);
  CheckpointStore store(env, "/checkpoints");
  const auto manifest = store.ReadManifest(name);
  const auto listing = store.List("");
  Check(listing.ok() && listing->complete.size() + listing->damaged.size() == 1,
        "it is complete or damaged");
  Check(listing->complete.size() == (manifest.ok() ? 1u : 0u), "and both say the same");
  if (!manifest.ok()) {
    Check(absl::IsDataLoss(manifest.status()) &&
              absl::StrContains(manifest.status().message(), "/MANIFEST") &&
              absl::StrContains(manifest.status().message(), "offset"),
          "a refusal with file and offset");
    return 0;
  }
  Check(manifest->job_name() == "job" && manifest->step() == 9 && manifest->parts_size() > 0,
        "it is what its folder says");
  // None of its parts is there.
  const absl::Status verified = store.Verify(name);
  Check(absl::IsDataLoss(verified), "parts that are missing are noticed");
  Check(!store.OpenPart(*manifest, 0).ok(), "a part that is missing is not opened");
  return 0;
}

}  // namespace pawl
