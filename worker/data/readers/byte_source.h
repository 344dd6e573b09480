// Bytes that are read once, from start to end.
#ifndef PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_
#define PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
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
  // Takes the next bytes, at most `size`, without copying them: a part of the source's memory.
  // Empty if the source has them not in memory, or at the end.
  virtual absl::string_view Take(size_t /*size*/) { return {}; }
  // The memory of buffers and of the state of decompression.
  virtual uint64_t memory_bytes() const { return 0; }
};

// Reads borrowed memory, which must outlive the source.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(absl::string_view bytes) : rest_(bytes) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override;
  absl::string_view Take(size_t size) override;

 private:
  absl::string_view rest_;
};

enum class Compression : uint8_t { kNone = 0, kGzip = 1, kZstd = 2 };

// A place of a compressed file from which decompression can start. The default is the file's start.
struct RestartPoint {
  uint64_t offset = 0;       // in the decompressed bytes
  uint64_t file_offset = 0;  // of the first byte to read
  // gzip: the last `bits` bits of the byte before file_offset also belong to the rest.
  uint8_t bits = 0;
  // gzip: the 32 KiB of decompressed bytes before the point, to which the rest may refer.
  std::string dictionary;
};

// Collects points at which a file can be restarted, while it is read from its start.
struct RestartRecorder {
  // Decompressed bytes between two points, at least.
  uint64_t spacing = 0;
  // Points up to the position of the source, in order. The start of the file is not among them.
  // The user removes those that it does not need.
  std::deque<RestartPoint> points;
  uint64_t last_offset = 0;

  bool Wants(uint64_t offset) const { return offset >= last_offset + spacing; }
  void Add(RestartPoint point) {
    last_offset = point.offset;
    points.push_back(std::move(point));
  }
};

// The compression of a file, by its first bytes or the end of its name (".gz", ".zst"). A TFRecord
// file may start with the bytes of gzip or zstd files, as the length of its first record; the
// checksum of the length tells it apart. Other formats never do. The errors of OpenDataFile.
absl::StatusOr<Compression> CompressionOf(const std::string& path);

// Reads a file, decompressed. NOT_FOUND, PERMISSION_DENIED or another system error, naming the
// file; INVALID_ARGUMENT for anything but a regular file, because a pipe could block the reader
// forever. `recorder`, if it is not null, outlives the source.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFile(const std::string& path,
                                                         RestartRecorder* recorder = nullptr);

// Reads a file of this compression from a point that a recorder collected.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFileAt(const std::string& path,
                                                           Compression compression,
                                                           const RestartPoint& point);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_BYTE_SOURCE_H_
