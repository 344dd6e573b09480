#include "worker/data/readers/gzip_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

GzipSource::GzipSource(std::unique_ptr<ByteSource> compressed, std::string name)
    : compressed_(std::move(compressed)), name_(std::move(name)), buffer_(kBufferBytes) {
  // 15: the largest window; 16: gzip only.
  initialized_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
}

GzipSource::~GzipSource() {
  if (initialized_) inflateEnd(&stream_);
}

absl::Status GzipSource::Malformed(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": ", what, " at byte ", filled_bytes_ - stream_.avail_in));
}

absl::StatusOr<bool> GzipSource::Fill() {
  if (stream_.avail_in > 0) return true;
  PAWL_ASSIGN_OR_RETURN(const size_t count, compressed_->Read(buffer_.data(), buffer_.size()));
  stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
  stream_.avail_in = static_cast<uInt>(count);
  filled_bytes_ += count;
  return count > 0;
}

absl::StatusOr<size_t> GzipSource::Read(char* out, size_t size) {
  if (!initialized_)
    return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory to decompress it"));
  size = std::min<size_t>(size, std::numeric_limits<uInt>::max());
  stream_.next_out = reinterpret_cast<Bytef*>(out);
  stream_.avail_out = static_cast<uInt>(size);
  while (stream_.avail_out == size) {
    PAWL_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) {
      if (in_member_) return Malformed("the gzip data ends early");
      return 0;
    }
    if (!in_member_) {
      inflateReset(&stream_);
      in_member_ = true;
    }
    switch (inflate(&stream_, Z_NO_FLUSH)) {
      case Z_OK:
      case Z_BUF_ERROR:
        break;
      case Z_STREAM_END:
        in_member_ = false;
        break;
      case Z_MEM_ERROR:
        return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory to decompress it"));
      default:
        return Malformed(
            absl::StrCat("not gzip data (", stream_.msg == nullptr ? "damaged" : stream_.msg, ")"));
    }
  }
  return size - stream_.avail_out;
}

}  // namespace pawl
