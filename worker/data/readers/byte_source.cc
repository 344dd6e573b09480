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
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/gzip_source.h"

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

  bool BeginsAsGzip() const {
    unsigned char magic[2];
    return pread(descriptor_, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
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

}  // namespace

absl::StatusOr<size_t> MemorySource::Read(char* out, size_t size) {
  const size_t count = std::min(size, rest_.size());
  if (count > 0) std::memcpy(out, rest_.data(), count);
  rest_.remove_prefix(count);
  return count;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenDataFile(const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> file, Open(path));
  if (!absl::EndsWith(path, ".gz") && !file->BeginsAsGzip()) return file;
  return std::make_unique<GzipSource>(std::move(file), path);
}

}  // namespace pawl
