// Reads a text line by line without copying.
#ifndef PAWL_WORKER_DATA_READERS_LINE_READER_H_
#define PAWL_WORKER_DATA_READERS_LINE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/byte_source.h"

namespace pawl {

// Lines end in "\n" or "\r\n"; the last one may have no end.
//
// Not thread-safe.
class LineReader {
 public:
  // Room for tens of thousands of features; a longer line is probably not a line.
  static constexpr size_t kMaxLineBytes = 1 << 20;
  // Read at once; the buffer grows beyond it only for a long line.
  static constexpr size_t kBufferBytes = 64 * 1024;

  // `source` must outlive the reader. Errors name the file `name`. `lines_before`: the lines of the
  // file before the source's first one.
  LineReader(ByteSource& source, std::string name, uint64_t lines_before = 0);

  // Sets *line to the next line without its end, valid until the next call. False after the last.
  // INVALID_ARGUMENT for a line above kMaxLineBytes, which the next call passes over. Other errors
  // are those of the source, after which the reader is unusable.
  absl::StatusOr<bool> Next(absl::string_view* line);

  // The number of the last line that Next returned; the first is 1.
  uint64_t line_number() const { return line_number_; }
  // The bytes of the source up to the end of that line.
  uint64_t offset() const { return read_ - (end_ - begin_); }
  // Whether the last line was too long, and the next call passes over its rest.
  bool discards() const { return discards_; }
  const std::string& name() const { return name_; }

 private:
  // Moves the unread part to the front and reads more behind it, into a larger buffer if it is
  // full.
  absl::Status Refill();

  ByteSource& source_;
  const std::string name_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // unread: [begin_, end_)
  size_t end_ = 0;
  bool at_end_ = false;
  // Within a line that is too long.
  bool discards_ = false;
  uint64_t read_ = 0;  // from the source
  uint64_t line_number_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_LINE_READER_H_
