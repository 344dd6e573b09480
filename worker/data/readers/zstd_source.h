// Decompression of zstd (RFC 8878) by libzstd.
#ifndef PAWL_WORKER_DATA_READERS_ZSTD_SOURCE_H_
#define PAWL_WORKER_DATA_READERS_ZSTD_SOURCE_H_

#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/readers/byte_source.h"

namespace pawl {

// Decompresses `compressed`; several frames read as one stream. INVALID_ARGUMENT for data that is
// not zstd, is damaged, ends early or needs a window above kMaxWindowLog, naming `name` and the
// offset in the compressed bytes. A recorder gets the starts of frames.
class ZstdSource final : public ByteSource {
 public:
  // 128 MiB, the most that the command zstd decompresses without options.
  static constexpr int kMaxWindowLog = 27;
  static constexpr size_t kBufferBytes = 128 * 1024;

  // `recorder` may be null, and otherwise outlives the source. `file_offset`: where in the file
  // `compressed`, which begins with a frame, begins.
  ZstdSource(std::unique_ptr<ByteSource> compressed, std::string name,
             RestartRecorder* recorder = nullptr, uint64_t file_offset = 0);
  ~ZstdSource() override;
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  absl::StatusOr<size_t> Read(char* out, size_t size) override;
  uint64_t memory_bytes() const override { return buffer_.size() + ZSTD_sizeof_DStream(stream_); }

 private:
  absl::Status Malformed(absl::string_view what) const;

  const std::unique_ptr<ByteSource> compressed_;
  const std::string name_;
  RestartRecorder* const recorder_;
  std::vector<char> buffer_;
  ZSTD_inBuffer input_ = {nullptr, 0, 0};
  ZSTD_DStream* const stream_;
  // The input must not end here: in a frame or before the first one.
  bool in_frame_ = true;
  uint64_t filled_bytes_;
  uint64_t written_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_ZSTD_SOURCE_H_
