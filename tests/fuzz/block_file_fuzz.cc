// Block files. The first byte selects whether checksums are corrected; the rest is the file. An
// accepted file must serialize to the same bytes.
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/testing/fault_env.h"
#include "server/storage/block_file.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

constexpr char kPath[] = "/file";

// The identity that the file claims, right or wrong.
BlockFileId IdIn(const std::string& bytes) {
  const char* in = bytes.data() + 12;
  BlockFileId id;
  id.kind = static_cast<BlockFileKind>(TakeNumber<uint32_t>(in));
  id.job_id = TakeNumber<uint64_t>(in);
  id.partition = TakeNumber<uint32_t>(in);
  TakeNumber<uint32_t>(in);
  id.index = TakeNumber<uint64_t>(in);
  id.mark = TakeNumber<uint64_t>(in);
  return id;
}

// Inserts checksums as far as the bytes reach. A block longer than the remaining bytes is taken as
// the footer.
void Seal(std::string& bytes) {
  char* const begin = bytes.data();
  const uint32_t id_crc = Crc32c(0, begin, kBlockFileHeaderBytes - 4);
  PutNumber(begin + kBlockFileHeaderBytes - 4, id_crc);
  size_t offset = kBlockFileHeaderBytes;
  for (uint64_t block = 0; bytes.size() - offset >= kBlockHeaderBytes; ++block) {
    const char* in = begin + offset;
    const auto length = TakeNumber<uint32_t>(in);
    const size_t payload = offset + kBlockHeaderBytes;
    if (length == 0 || length > bytes.size() - payload) break;
    char seed[16];
    PutNumber(PutNumber(PutNumber(seed, id_crc), block), length);
    PutNumber(begin + offset + 4, Crc32c(Crc32c(0, seed, sizeof(seed)), begin + payload, length));
    offset = payload + length;
  }
  if (bytes.size() - offset < kBlockFileFooterBytes) return;
  const uint32_t file_crc = Crc32c(0, begin, offset);
  PutNumber(begin + offset + 20, file_crc);
  PutNumber(begin + offset + 24, Crc32c(file_crc, begin + offset, kBlockFileFooterBytes - 4));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 + kBlockFileHeaderBytes) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Seal(bytes);
  FaultEnv env(1);
  env.SetContents(kPath, bytes);
  const BlockFileId id = IdIn(bytes);
  const auto reader = BlockFileReader::Open(env, kPath, id);
  absl::Status status = reader.status();
  std::string payload;
  while (status.ok()) {
    const absl::StatusOr<absl::string_view> block = (*reader)->NextBlock();
    status = block.status();
    if (!status.ok() || block->empty()) break;
    payload.append(block->data(), block->size());
  }
  if (!status.ok()) {
    FuzzCheck(absl::StrContains(status.message(), "/file"), "the refusal names the file");
    const absl::string_view found = absl::IsInvalidArgument(status) ? "has version " : "offset";
    FuzzCheck(absl::IsDataLoss(status) || absl::IsInvalidArgument(status),
              "the refusal has an expected code");
    FuzzCheck(absl::StrContains(status.message(), found), "the refusal names offset or version");
    return 0;
  }
  const auto writer = BlockFileWriter::Create(env, "/again", id);
  FuzzCheck(writer.ok() && (*writer)->Append(payload).ok() && (*writer)->Finish().ok(),
            "the blocks can be written");
  FuzzCheck(env.Contents("/again") == bytes, "the bytes are equal");
  return 0;
}

}  // namespace pawl
