// Reads runs of bytes of known length from a source.
#ifndef PAWL_WORKER_DATA_RECORDS_BYTE_RUNS_H_
#define PAWL_WORKER_DATA_RECORDS_BYTE_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/byte_source.h"

namespace pawl {

// Not thread-safe.
class ByteRuns {
 public:
  static constexpr size_t kBufferBytes = 64 * 1024;

  // `source` must outlive this object.
  explicit ByteRuns(ByteSource& source) : source_(source) {}

  // The next `size` bytes, or those that are left, valid until the next call. Errors are those of
  // the source. REQUIRES: `size` has a limit, because it is the memory that a call may need.
  absl::StatusOr<absl::string_view> Read(size_t size);

  // The bytes up to the end of the last run.
  uint64_t offset() const { return read_ - (end_ - begin_); }
  uint64_t memory_bytes() const { return buffer_.size(); }

 private:
  ByteSource& source_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // unread: [begin_, end_)
  size_t end_ = 0;
  uint64_t read_ = 0;  // from the source
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_RECORDS_BYTE_RUNS_H_
