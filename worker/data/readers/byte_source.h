// Bytes that are read once, from start to end.
#ifndef PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_
#define PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pawl {

// Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Writes up to `size` bytes to `out` and returns their number, which is 0 only at the end. After
  // an error the source is unusable. REQUIRES: size > 0.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;
};

// Reads borrowed memory, which must outlive the source.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(absl::string_view bytes) : rest_(bytes) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override;

 private:
  absl::string_view rest_;
};

// Reads a file, through a GzipSource if the name ends in ".gz" or the file starts as gzip files do
// (no format read here starts with those bytes). NOT_FOUND, PERMISSION_DENIED or another system
// error, naming the file; INVALID_ARGUMENT for anything but a regular file, because a pipe could
// block the reader forever.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFile(const std::string& path);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_
