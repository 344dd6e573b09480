// Zstd files. The output must not depend on the sizes of reads and writes.
#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/fuzz/data_check.h"
#include "worker/data/readers/zstd_source.h"

namespace pawl {
namespace {

// Appends the output of `source` to *out, at most kFuzzMaxBytes.
absl::Status Expand(absl::string_view compressed, size_t compressed_piece, size_t piece,
                    std::string* out) {
  ZstdSource source(InPieces(compressed, compressed_piece), "input");
  std::string buffer(piece, '\0');
  while (out->size() < kFuzzMaxBytes) {
    const absl::StatusOr<size_t> count =
        source.Read(buffer.data(), std::min(piece, kFuzzMaxBytes - out->size()));
    if (!count.ok()) return count.status();
    FuzzCheck(*count <= piece, "bytes of a read");
    if (*count == 0) break;
    out->append(buffer, 0, *count);
  }
  return absl::OkStatus();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view compressed(reinterpret_cast<const char*>(data), size);
  std::string whole;
  std::string pieces;
  const absl::Status status = Expand(compressed, size_t{1} << 16, size_t{1} << 16, &whole);
  FuzzCheck(status.ok() || absl::IsInvalidArgument(status), "code of the refusal");
  const absl::Status status_in_pieces = Expand(compressed, 3, 777, &pieces);
  FuzzCheck(status.code() == status_in_pieces.code(), "reading in pieces gives the same code");
  // Bytes before an error may be delivered or not.
  if (status.ok()) FuzzCheck(whole == pieces, "reading in pieces gives the same bytes");
  return 0;
}

}  // namespace pawl
