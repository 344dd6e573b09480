// Gzip files.
#include <cstdint>
#include <memory>
#include <utility>

#include "tests/fuzz/data_check.h"
#include "worker/data/readers/gzip_source.h"

namespace pawl {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  CheckDecompression(absl::string_view(reinterpret_cast<const char*>(data), size),
                     [](std::unique_ptr<ByteSource> compressed) -> std::unique_ptr<ByteSource> {
                       return std::make_unique<GzipSource>(std::move(compressed), "input");
                     });
  return 0;
}

}  // namespace pawl
