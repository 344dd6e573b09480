#include "worker/data/readers/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/gzip_source.h"
#include "worker/data/readers/zstd_source.h"

namespace pawl {
namespace {

class FileSource final : public ByteSource {
 public:
  // Takes ownership of the open file.
  FileSource(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~FileSource() override { close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    for (;;) {
      const ssize_t count = read(descriptor_, out, size);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    }
  }

  // The first bytes of the file, at most `size`.
  std::string Head(size_t size) const {
    std::string bytes(size, '\0');
    const ssize_t count = pread(descriptor_, bytes.data(), size, 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }

  absl::Status Seek(uint64_t offset) {
    if (lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) >= 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot seek in ", path_));
  }

 private:
  const int descriptor_;
  const std::string path_;
};

absl::StatusOr<std::unique_ptr<FileSource>> Open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe waits for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  auto source = std::make_unique<FileSource>(descriptor, path);
  struct stat info;
  if (fstat(descriptor, &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  return source;
}

// Whether these are the length of a TFRecord and its checksum.
bool IsRecordHead(absl::string_view bytes) {
  constexpr size_t kLengthBytes = sizeof(uint64_t);
  uint32_t crc = 0;
  if (bytes.size() < kLengthBytes + sizeof(crc)) return false;
  std::memcpy(&crc, bytes.data() + kLengthBytes, sizeof(crc));
  return crc == MaskedCrc32c(bytes.data(), kLengthBytes);
}

Compression CompressionOf(const FileSource& file, const std::string& path) {
  if (absl::EndsWith(path, ".gz")) return Compression::kGzip;
  if (absl::EndsWith(path, ".zst")) return Compression::kZstd;
  const std::string head = file.Head(12);
  if (IsRecordHead(head)) return Compression::kNone;
  if (absl::StartsWith(head, "\x1f\x8b")) return Compression::kGzip;
  if (absl::StartsWith(head, "\x28\xb5\x2f\xfd")) return Compression::kZstd;
  return Compression::kNone;
}

}  // namespace

absl::StatusOr<size_t> MemorySource::Read(char* out, size_t size) {
  const size_t count = std::min(size, rest_.size());
  if (count > 0) std::memcpy(out, rest_.data(), count);
  rest_.remove_prefix(count);
  return count;
}

absl::string_view MemorySource::Take(size_t size) {
  const absl::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(bytes.size());
  return bytes;
}

absl::StatusOr<Compression> CompressionOf(const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<FileSource> file, Open(path));
  return CompressionOf(*file, path);
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFile(const std::string& path,
                                                         RestartRecorder* recorder) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> file, Open(path));
  switch (CompressionOf(*file, path)) {
    case Compression::kGzip:
      return std::make_unique<GzipSource>(std::move(file), path, recorder);
    case Compression::kZstd:
      return std::make_unique<ZstdSource>(std::move(file), path, recorder);
    case Compression::kNone:
      break;
  }
  return file;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFileAt(const std::string& path,
                                                           Compression compression,
                                                           const RestartPoint& point) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> file, Open(path));
  if (point.file_offset > 0)
    PAWL_RETURN_IF_ERROR(file->Seek(point.file_offset - (point.bits > 0 ? 1 : 0)));
  switch (compression) {
    case Compression::kGzip:
      return GzipSource::StartingAt(std::move(file), path, point);
    case Compression::kZstd:
      return std::make_unique<ZstdSource>(std::move(file), path, nullptr, point.file_offset);
    case Compression::kNone:
      break;
  }
  return file;
}

}  // namespace pawl
