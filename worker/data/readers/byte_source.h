// Bytes that are read once, from the beginning to the end.
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

  // Puts up to `size` bytes at `out` and returns how many, 0 only at the end.
  // After an error the source is of no more use.
  // REQUIRES: size > 0.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;
};

// Reads memory that belongs to somebody else and must outlive the source.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(absl::string_view bytes) : rest_(bytes) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override;

 private:
  absl::string_view rest_;
};

// Reads a file, through a GzipSource if the name ends in ".gz" or the file begins as
// gzip files do (no format read here begins with those bytes). NOT_FOUND,
// PERMISSION_DENIED or what else the system says, naming the file; INVALID_ARGUMENT for
// what is not a regular file (a pipe could keep the reader waiting for ever).
absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFile(const std::string& path);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_
