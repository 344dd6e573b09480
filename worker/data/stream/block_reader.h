// Reads blocks of indexed files, and verifies them.
#ifndef PAWL_WORKER_DATA_STREAM_BLOCK_READER_H_
#define PAWL_WORKER_DATA_STREAM_BLOCK_READER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/stream/indexed_files.h"

namespace pawl {

// Blocks that follow each other in a file are read without a new start. Not thread-safe.
class BlockReader {
 public:
  // Both outlive the reader. Reads fail with CANCELLED once `is_cancelled`.
  BlockReader(const std::vector<IndexedFile>& files, const std::atomic<bool>& is_cancelled)
      : files_(files), is_cancelled_(is_cancelled) {}

  // The bytes of a block, valid until the next call. DATA_LOSS, naming the file, for a block that
  // is not as its index says; FAILED_PRECONDITION for a file that has changed; or an error of the
  // file system.
  absl::StatusOr<absl::string_view> Read(size_t file, size_t block);

  uint64_t memory_bytes() const {
    return bytes_.capacity() + (source_ == nullptr ? 0 : source_->memory_bytes());
  }

 private:
  absl::Status MoveTo(const IndexedFile& file, const DataBlock& block);
  absl::Status ReadFully(const IndexedFile& file, char* out, size_t size);

  const std::vector<IndexedFile>& files_;
  const std::atomic<bool>& is_cancelled_;
  // Null or at position_ of file_.
  std::unique_ptr<ByteSource> source_;
  size_t file_ = 0;
  uint64_t position_ = 0;
  std::string bytes_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_STREAM_BLOCK_READER_H_
