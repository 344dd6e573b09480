// Two IDX files. The first two bytes are the length of the images (big-endian); the labels follow
// the images.
#include <cstdint>

#include "tests/fuzz/data_check.h"
#include "worker/data/readers/idx_reader.h"

namespace pawl {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const absl::string_view files(reinterpret_cast<const char*>(data) + 2, size - 2);
  const absl::string_view images = files.substr(0, size_t{data[0]} << 8 | data[1]);
  const absl::string_view labels = files.substr(images.size());
  SampleStore store(kFuzzMaxBytes);
  SampleStore store_in_pieces(kFuzzMaxBytes);
  const absl::Status status = ReadIdx(*InPieces(images, size_t{1} << 16), "images",
                                      *InPieces(labels, size_t{1} << 16), "labels", &store);
  CheckReaderResult(status, store);
  FuzzCheck(ReadIdx(*InPieces(images, 3), "images", *InPieces(labels, 3), "labels",
                    &store_in_pieces) == status,
            "reading in pieces gives the same status");
  CheckSame(store, store_in_pieces);
  return 0;
}

}  // namespace pawl
