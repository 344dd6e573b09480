// LIBSVM text. The first byte selects the number of fields; the rest is the file.
#include <cstdint>

#include "tests/fuzz/data_check.h"
#include "worker/data/readers/testing/read_samples.h"

namespace pawl {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint32_t fields = data[0] % 4;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  SampleStore store(kFuzzMaxBytes);
  SampleStore store_in_pieces(kFuzzMaxBytes);
  const absl::Status status = ReadLibsvm(*InPieces(text, size_t{1} << 16), "input", fields, &store);
  CheckReaderResult(status, store);
  FuzzCheck(ReadLibsvm(*InPieces(text, 3), "input", fields, &store_in_pieces) == status,
            "reading in pieces gives the same status");
  CheckSame(store, store_in_pieces);
  return 0;
}

}  // namespace pawl
