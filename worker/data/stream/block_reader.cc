#include "worker/data/stream/block_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// Passed over at once.
constexpr size_t kSkipBytes = 256 * 1024;

}  // namespace

absl::Status BlockReader::ReadFully(const IndexedFile& file, char* out, size_t size) {
  while (size > 0) {
    PAWL_ASSIGN_OR_RETURN(const size_t count, source_->Read(out, size));
    if (count == 0) {
      return absl::DataLossError(absl::StrCat(file.path, ": ends at byte ", position_,
                                              ", before the end that its index says"));
    }
    position_ += count;
    out += count;
    size -= count;
  }
  return absl::OkStatus();
}

absl::Status BlockReader::MoveTo(const IndexedFile& file, const DataBlock& block) {
  const Compression compression = file.index.compression;
  if (compression == Compression::kNone) {
    if (source_ != nullptr && position_ == block.offset) return absl::OkStatus();
    RestartPoint point;
    point.offset = point.file_offset = block.offset;
    PAWL_ASSIGN_OR_RETURN(source_, OpenDataFileAt(file.path, compression, point));
    position_ = block.offset;
    return absl::OkStatus();
  }
  const BlockIndex::Restart& restart = file.index.restarts[block.restart];
  // The present position, reached from an earlier restart point, may be nearer.
  if (source_ == nullptr || position_ > block.offset || position_ < restart.point.offset) {
    PAWL_ASSIGN_OR_RETURN(const RestartPoint point,
                          LoadRestart(restart, file.index_path, file.dictionaries_begin));
    PAWL_ASSIGN_OR_RETURN(source_, OpenDataFileAt(file.path, compression, point));
    position_ = point.offset;
  }
  bytes_.resize(std::max(bytes_.size(), kSkipBytes));
  while (position_ < block.offset) {
    if (is_cancelled_) return absl::CancelledError("the rank has ended");
    const size_t size =
        static_cast<size_t>(std::min<uint64_t>(kSkipBytes, block.offset - position_));
    PAWL_RETURN_IF_ERROR(ReadFully(file, bytes_.data(), size));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> BlockReader::Read(size_t file_number, size_t block_number) {
  const IndexedFile& file = files_[file_number];
  const DataBlock& block = file.index.blocks[block_number];
  PAWL_ASSIGN_OR_RETURN(const FileVersion now, VersionOf(file.path));
  if (now != file.index.version) {
    source_.reset();
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": has changed since its index was made (it had ",
                     file.index.version.bytes, " bytes and has ", now.bytes, ")"));
  }
  if (file_ != file_number) source_.reset();
  file_ = file_number;
  absl::Status status = MoveTo(file, block);
  if (status.ok()) {
    bytes_.resize(std::max<size_t>(bytes_.size(), block.bytes));
    status = ReadFully(file, bytes_.data(), block.bytes);
  }
  if (status.ok() && Crc32c(0, bytes_.data(), block.bytes) != block.crc) {
    status = absl::DataLossError(
        absl::StrCat(file.path, ": the ", block.bytes, " bytes from ", block.offset,
                     " on are not those of its index: the file is damaged, or has changed"));
  }
  if (!status.ok()) {
    source_.reset();
    return status;
  }
  return absl::string_view(bytes_.data(), block.bytes);
}

}  // namespace pawl
