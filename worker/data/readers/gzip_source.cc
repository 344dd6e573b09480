#include "worker/data/readers/gzip_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

GzipSource::GzipSource(std::unique_ptr<ByteSource> compressed, std::string name,
                       RestartRecorder* recorder)
    : compressed_(std::move(compressed)),
      name_(std::move(name)),
      buffer_(kBufferBytes),
      recorder_(recorder) {
  // 15: the largest window; 16: gzip only.
  initialized_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
}

absl::StatusOr<std::unique_ptr<GzipSource>> GzipSource::StartingAt(
    std::unique_ptr<ByteSource> compressed, std::string name, const RestartPoint& point) {
  auto source = std::make_unique<GzipSource>(std::move(compressed), std::move(name));
  if (point.file_offset == 0) return source;
  if (!source->initialized_ || inflateReset2(&source->stream_, -15) != Z_OK) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source->name_, ": no memory to decompress it"));
  }
  source->is_raw_ = true;
  source->filled_bytes_ = point.file_offset - (point.bits > 0 ? 1 : 0);
  if (point.bits > 0) {
    PAWL_ASSIGN_OR_RETURN(const bool more, source->Fill());
    if (!more) return source->Malformed("the gzip data ends early");
    const int byte = *source->stream_.next_in++;
    --source->stream_.avail_in;
    inflatePrime(&source->stream_, point.bits, byte >> (8 - point.bits));
  }
  if (inflateSetDictionary(&source->stream_,
                           reinterpret_cast<const Bytef*>(point.dictionary.data()),
                           static_cast<uInt>(point.dictionary.size())) != Z_OK) {
    return source->Malformed("its index has a wrong restart point");
  }
  return source;
}

void GzipSource::Record() {
  // The header of a member, or a block that is not the last of one, has ended.
  if ((stream_.data_type & 128) == 0 || (stream_.data_type & 64) != 0) return;
  if (written_ == 0 || !recorder_->Wants(written_)) return;
  RestartPoint point;
  point.offset = written_;
  point.file_offset = filled_bytes_ - stream_.avail_in;
  point.bits = static_cast<uint8_t>(stream_.data_type & 7);
  uInt size = 0;
  inflateGetDictionary(&stream_, nullptr, &size);
  point.dictionary.resize(size);
  inflateGetDictionary(&stream_, reinterpret_cast<Bytef*>(point.dictionary.data()), &size);
  recorder_->Add(std::move(point));
}

absl::Status GzipSource::SkipTrailer() {
  for (int i = 0; i < 8; ++i) {
    PAWL_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return Malformed("the gzip data ends early");
    ++stream_.next_in;
    --stream_.avail_in;
  }
  return absl::OkStatus();
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
      inflateReset2(&stream_, 15 + 16);
      is_raw_ = false;
      in_member_ = true;
    }
    const uInt free_before = stream_.avail_out;
    const int result = inflate(&stream_, recorder_ == nullptr ? Z_NO_FLUSH : Z_BLOCK);
    written_ += free_before - stream_.avail_out;
    switch (result) {
      case Z_OK:
      case Z_BUF_ERROR:
        if (recorder_ != nullptr) Record();
        break;
      case Z_STREAM_END:
        in_member_ = false;
        if (is_raw_) PAWL_RETURN_IF_ERROR(SkipTrailer());
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
