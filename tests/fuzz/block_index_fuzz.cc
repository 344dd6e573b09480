// The index of a data file. The checksum of the input is corrected, so that the parser sees what a
// damaged or hostile file can hold.
#include <cstdint>
#include <cstring>
#include <string>

#include "client_lib/base/crc32c.h"
#include "tests/fuzz/fuzz_check.h"
#include "worker/data/stream/block_index.h"

namespace pawl {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  uint64_t begin = 0;
  if (!DecodeBlockIndex(bytes, &begin).ok() && size > 16) {
    const auto message = static_cast<uint32_t>(size - 16);
    const uint32_t crc = Crc32c(0, bytes.data() + 16, message);
    bytes.replace(0, 8, "PAWLIDX1");
    std::memcpy(bytes.data() + 8, &message, sizeof(message));
    std::memcpy(bytes.data() + 12, &crc, sizeof(crc));
  }
  const absl::StatusOr<BlockIndex> index = DecodeBlockIndex(bytes, &begin);
  if (!index.ok()) {
    FuzzCheck(absl::IsInvalidArgument(index.status()), "code of the refusal");
    return 0;
  }
  FuzzCheck(begin <= bytes.size(), "place of the dictionaries");
  for (const DataBlock& block : index->blocks) {
    if (index->compression == Compression::kNone) continue;
    FuzzCheck(block.restart < index->restarts.size() &&
                  index->restarts[block.restart].point.offset <= block.offset,
              "restart point of a block");
  }
  uint64_t again_begin = 0;
  const absl::StatusOr<BlockIndex> again =
      DecodeBlockIndex(EncodeBlockIndex(*index, "").value(), &again_begin);
  FuzzCheck(again.ok() && again->Identity() == index->Identity() &&
                again->samples() == index->samples() && again->version == index->version,
            "an encoded index is the same");
  return 0;
}

}  // namespace pawl
