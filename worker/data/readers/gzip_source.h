// Decompression of gzip (RFC 1952) by zlib.
#ifndef PAWL_WORKER_DATA_READERS_GZIP_SOURCE_H_
#define PAWL_WORKER_DATA_READERS_GZIP_SOURCE_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/readers/byte_source.h"

namespace pawl {

// Decompresses `compressed`; several gzip members read as one stream. INVALID_ARGUMENT for data
// that is not gzip, is damaged (checksums are verified) or ends early, naming `name` and the offset
// in the compressed bytes.
//
// Holds one buffer of kBufferBytes, whatever the data expands to; the reader limits how much it
// keeps.
class GzipSource final : public ByteSource {
 public:
  static constexpr size_t kBufferBytes = 64 * 1024;
  // The window of 32 KiB and the tables of zlib, as its documentation says.
  static constexpr size_t kInflateBytes = 40 * 1024;

  // `recorder` may be null, and otherwise outlives the source.
  GzipSource(std::unique_ptr<ByteSource> compressed, std::string name,
             RestartRecorder* recorder = nullptr);
  // Continues at a point of a recorder. `compressed` begins with the byte that has the point's
  // bits, if there are any, otherwise at its file_offset.
  static absl::StatusOr<std::unique_ptr<GzipSource>> StartingAt(
      std::unique_ptr<ByteSource> compressed, std::string name, const RestartPoint& point);
  ~GzipSource() override;
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  absl::StatusOr<size_t> Read(char* out, size_t size) override;
  uint64_t memory_bytes() const override { return buffer_.size() + kInflateBytes; }

 private:
  // Reads more input if there is none. False at its end.
  absl::StatusOr<bool> Fill();
  absl::Status Malformed(absl::string_view what) const;
  // Passes over the checksum and length at the end of a member whose start was not read.
  absl::Status SkipTrailer();
  // Records a point if inflate has stopped at one.
  void Record();

  const std::unique_ptr<ByteSource> compressed_;
  const std::string name_;
  std::vector<char> buffer_;
  z_stream stream_ = {};
  RestartRecorder* const recorder_;
  bool initialized_ = false;
  // Within a member that is read from a restart point: its deflate stream, without checks.
  bool is_raw_ = false;
  // Inside a member or before the first one: the input must not end here.
  bool in_member_ = true;
  uint64_t filled_bytes_ = 0;
  uint64_t written_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_GZIP_SOURCE_H_
