#include "client_lib/base/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

template <typename Call>
auto RetryInterrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result == -1 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  absl::Status Append(absl::Span<const Fragment> fragments) override {
    PAWL_RETURN_IF_ERROR(broken_);
    if (undefined_tail_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "append to ", path_, ": Truncate has not been called since a failed append"));
    }
    uint64_t written = 0;
    size_t next = 0;
    size_t done_of_next = 0;  // Bytes of fragments[next] that are written.
    absl::InlinedVector<iovec, 64> vectors;
    while (true) {
      vectors.clear();
      for (size_t i = next; i < fragments.size() && vectors.size() < IOV_MAX; ++i) {
        const size_t skipped = i == next ? done_of_next : 0;
        if (fragments[i].size() == skipped) continue;
        vectors.push_back(
            {const_cast<char*>(fragments[i].data()) + skipped, fragments[i].size() - skipped});
      }
      if (vectors.empty()) break;
      const ssize_t count = RetryInterrupted(
          [&] { return writev(fd_.get(), vectors.data(), static_cast<int>(vectors.size())); });
      if (count <= 0) {
        undefined_tail_ = true;
        return FileError("write", path_, count == 0 ? EIO : errno);
      }
      written += count;
      for (size_t rest = count; rest > 0;) {
        const size_t taken = std::min(rest, fragments[next].size() - done_of_next);
        rest -= taken;
        done_of_next += taken;
        if (done_of_next == fragments[next].size()) {
          ++next;
          done_of_next = 0;
        }
      }
    }
    size_ += written;
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    PAWL_RETURN_IF_ERROR(broken_);
    if (RetryInterrupted([&] { return fdatasync(fd_.get()); }) != 0)
      broken_ = FileError("sync", path_, errno);
    return broken_;
  }

  absl::Status Truncate(uint64_t size) override {
    PAWL_RETURN_IF_ERROR(broken_);
    if (RetryInterrupted([&] { return ftruncate(fd_.get(), static_cast<off_t>(size)); }) != 0) {
      return FileError("truncate", path_, errno);
    }
    undefined_tail_ = false;
    size_ = size;
    return absl::OkStatus();
  }

  absl::Status Close() override {
    const int fd = fd_.Release();
    // The descriptor is gone even after EINTR.
    if (fd >= 0 && close(fd) != 0 && errno != EINTR) return FileError("close", path_, errno);
    return absl::OkStatus();
  }

  uint64_t size() const override { return size_; }

 private:
  const std::string path_;
  Descriptor fd_;
  uint64_t size_;
  bool undefined_tail_ = false;
  // The error of the first failed sync. The kernel may have dropped what it could not write, and
  // would report OK next time.
  absl::Status broken_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::StatusOr<size_t> Read(uint64_t offset, absl::Span<char> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = RetryInterrupted([&] {
        return pread(fd_.get(), out.data() + done, out.size() - done,
                     static_cast<off_t>(offset + done));
      });
      if (count < 0) return FileError("read", path_, errno);
      if (count == 0) break;
      done += count;
    }
    return done;
  }

  absl::StatusOr<uint64_t> Size() const override {
    struct stat status;
    if (fstat(fd_.get(), &status) != 0) return FileError("stat", path_, errno);
    return static_cast<uint64_t>(status.st_size);
  }

 private:
  const std::string path_;
  const Descriptor fd_;
};

class PosixFolderLock final : public FolderLock {
 public:
  explicit PosixFolderLock(int fd) : fd_(fd) {}

 private:
  const Descriptor fd_;
};

class PosixEnv final : public Env {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return OpenToWrite(path, O_CREAT | O_TRUNC);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return OpenToWrite(path, 0);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    // O_NONBLOCK: a named pipe does not block the caller.
    const int fd =
        RetryInterrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
    if (fd < 0) return FileError("open", path, errno);
    return std::make_unique<PosixReadableFile>(path, fd);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0)
      return FileError(absl::StrCat("rename to ", to, " of"), from, errno);
    return absl::OkStatus();
  }

  absl::Status Delete(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return FileError("delete", path, errno);
    return absl::OkStatus();
  }

  absl::Status MakeFolder(const std::string& path) override {
    if (mkdir(path.c_str(), 0755) == 0) return absl::OkStatus();
    const int error_number = errno;
    struct stat status;
    if (error_number == EEXIST && stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
      return absl::OkStatus();
    return FileError("make folder", path, error_number);
  }

  absl::Status DeleteFolder(const std::string& path) override {
    if (rmdir(path.c_str()) != 0) return FileError("delete folder", path, errno);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    DIR* const stream = opendir(folder.c_str());
    if (stream == nullptr) return FileError("list", folder, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(stream)) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error_number = errno;
    closedir(stream);
    if (error_number != 0) return FileError("list", folder, error_number);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status SyncFolder(const std::string& folder) override {
    const Descriptor fd(
        RetryInterrupted([&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (fd.get() < 0) return FileError("open", folder, errno);
    if (RetryInterrupted([&] { return fsync(fd.get()); }) != 0)
      return FileError("sync", folder, errno);
    return absl::OkStatus();
  }

  void DropCached(const std::string& path) override {
    const Descriptor fd(RetryInterrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
    if (fd.get() >= 0) posix_fadvise(fd.get(), /*offset=*/0, /*len=*/0, POSIX_FADV_DONTNEED);
  }

  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) return FileError("stat", path, errno);
    return static_cast<uint64_t>(status.st_size);
  }

  absl::StatusOr<std::unique_ptr<FolderLock>> LockFolder(const std::string& folder) override {
    const std::string path = JoinPath(folder, kFolderLockFile);
    Descriptor fd(
        RetryInterrupted([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); }));
    if (fd.get() < 0) return FileError("open", path, errno);
    if (RetryInterrupted([&] { return flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
      return absl::UnavailableError(
          absl::StrCat("the folder ", folder,
                       " is in use by another process; stop that process or use another folder"));
    }
    return std::make_unique<PosixFolderLock>(fd.Release());
  }

 private:
  static absl::StatusOr<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path,
                                                                   int flags) {
    Descriptor fd(RetryInterrupted(
        [&] { return open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644); }));
    if (fd.get() < 0) return FileError("open", path, errno);
    struct stat status;
    if (fstat(fd.get(), &status) != 0) return FileError("stat", path, errno);
    return std::make_unique<PosixWritableFile>(path, fd.Release(), status.st_size);
  }
};

}  // namespace

absl::Status FileError(absl::string_view operation, absl::string_view path, int error_number) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  switch (error_number) {
    case ENOENT:
      code = absl::StatusCode::kNotFound;
      break;
    case EEXIST:
      code = absl::StatusCode::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = absl::StatusCode::kPermissionDenied;
      break;
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case EISDIR:
    case ENOTEMPTY:
    case EFBIG:
    case ENODEV:
    case ENXIO:
    case EOPNOTSUPP:
      code = absl::StatusCode::kFailedPrecondition;
      break;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case EIO:
    case EUCLEAN:
    case EBADMSG:
      code = absl::StatusCode::kDataLoss;
      break;
    default:
      break;
  }
  char buffer[128];
  return absl::Status(code, absl::StrCat(operation, " ", path, ": ",
                                         strerror_r(error_number, buffer, sizeof(buffer))));
}

Env& Env::Real() {
  static PosixEnv* const env = new PosixEnv();
  return *env;
}

std::string JoinPath(absl::string_view folder, absl::string_view name) {
  if (folder.empty()) return std::string(name);
  return absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", name);
}

std::string FolderOf(absl::string_view path) {
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

absl::StatusOr<bool> FileExists(Env& env, const std::string& path) {
  const absl::Status status = env.FileSize(path).status();
  // INVALID_ARGUMENT: no file can have that name, for example because its folder is a file.
  if (absl::IsNotFound(status) || absl::IsInvalidArgument(status)) return false;
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<std::string> ReadWholeFile(Env& env, const std::string& path, uint64_t max_bytes) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, env.OpenForRead(path));
  PAWL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("read ", path, ": it has ", size,
                                                     " bytes, more than the limit of ", max_bytes));
  }
  std::string contents(size, '\0');
  PAWL_ASSIGN_OR_RETURN(const size_t count, file->Read(0, absl::MakeSpan(contents)));
  contents.resize(count);
  return contents;
}

absl::Status WriteFileDurably(Env& env, const std::string& path,
                              absl::Span<const WritableFile::Fragment> fragments) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  const auto write = [&]() -> absl::Status {
    PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, env.Create(temporary));
    PAWL_RETURN_IF_ERROR(file->Append(fragments));
    PAWL_RETURN_IF_ERROR(file->Sync());
    PAWL_RETURN_IF_ERROR(file->Close());
    return env.Rename(temporary, path);
  };
  if (absl::Status status = write(); !status.ok()) {
    env.Delete(temporary).IgnoreError();
    return status;
  }
  return env.SyncFolder(FolderOf(path));
}

absl::Status WriteFileDurably(Env& env, const std::string& path, absl::string_view text) {
  const WritableFile::Fragment fragment(text.data(), text.size());
  return WriteFileDurably(env, path, absl::MakeConstSpan(&fragment, 1));
}

}  // namespace pawl
