#include "worker/data/readers/zstd_source.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

ZstdSource::ZstdSource(std::unique_ptr<ByteSource> compressed, std::string name,
                       RestartRecorder* recorder, uint64_t file_offset)
    : compressed_(std::move(compressed)),
      name_(std::move(name)),
      recorder_(recorder),
      buffer_(kBufferBytes),
      stream_(ZSTD_createDStream()),
      filled_bytes_(file_offset) {
  if (stream_ != nullptr) ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxWindowLog);
}

ZstdSource::~ZstdSource() { ZSTD_freeDStream(stream_); }

absl::Status ZstdSource::Malformed(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": ", what, " at byte ", filled_bytes_ - (input_.size - input_.pos)));
}

absl::StatusOr<size_t> ZstdSource::Read(char* out, size_t size) {
  if (stream_ == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory to decompress it"));
  ZSTD_outBuffer output = {out, size, 0};
  while (output.pos == 0) {
    if (input_.pos == input_.size) {
      PAWL_ASSIGN_OR_RETURN(const size_t count, compressed_->Read(buffer_.data(), buffer_.size()));
      input_ = {buffer_.data(), count, 0};
      filled_bytes_ += count;
    }
    const bool is_end = input_.size == 0;
    if (is_end && !in_frame_) return 0;
    const uint64_t frame_offset = filled_bytes_ - (input_.size - input_.pos);
    if (!in_frame_ && recorder_ != nullptr && recorder_->Wants(written_)) {
      recorder_->Add(
          {.offset = written_, .file_offset = frame_offset, .bits = 0, .dictionary = ""});
    }
    // At the end of the input, too: the stream may hold output that did not fit before.
    const size_t result = ZSTD_decompressStream(stream_, &output, &input_);
    if (ZSTD_isError(result) != 0) {
      return Malformed(absl::StrCat("not zstd data (", ZSTD_getErrorName(result), ")"));
    }
    in_frame_ = result != 0;
    written_ += output.pos;
    if (is_end && in_frame_ && output.pos == 0) return Malformed("the zstd data ends early");
  }
  return output.pos;
}

}  // namespace pawl
