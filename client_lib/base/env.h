// Files as something that is passed in, so that a test can take away what was not synced.
#ifndef PAWL_CLIENT_LIB_BASE_ENV_H_
#define PAWL_CLIENT_LIB_BASE_ENV_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pawl {

// The error of a system call on a file: names the operation, the file and errno's text.
//   ENOENT NOT_FOUND; EEXIST ALREADY_EXISTS; EACCES, EPERM, EROFS PERMISSION_DENIED;
//   ENOTDIR, ENAMETOOLONG, ELOOP, EINVAL INVALID_ARGUMENT: the path is none;
//   EISDIR, ENOTEMPTY, EFBIG, ENODEV, ENXIO, EOPNOTSUPP FAILED_PRECONDITION: what is there is of
//   another kind; ENOSPC, EDQUOT, EMFILE, ENFILE RESOURCE_EXHAUSTED; EIO DATA_LOSS; all others
//   UNAVAILABLE: it may be better next time.
absl::Status FileError(absl::string_view operation, absl::string_view path, int error_number);

// A file that grows at its end. Not thread-safe. Closes itself, without syncing.
class WritableFile {
 public:
  using Fragment = absl::Span<const char>;

  virtual ~WritableFile() = default;

  // Writes the fragments at the end, in order. After an error what lies in the file beyond size()
  // is undefined, and nothing may be appended before Truncate(size()) has succeeded.
  virtual absl::Status Append(absl::Span<const Fragment> fragments) = 0;
  // What was appended survives a loss of power. After an error the file is lost for good: what was
  // not synced before may be gone though it can still be read, so every later Append, Sync and
  // Truncate fails too.
  virtual absl::Status Sync() = 0;
  // Cuts the file to `size` bytes. REQUIRES: size <= size().
  virtual absl::Status Truncate(uint64_t size) = 0;
  virtual absl::Status Close() = 0;
  // Bytes in the file, as far as Append has succeeded.
  virtual uint64_t size() const = 0;

  absl::Status Append(absl::string_view bytes) {
    const Fragment fragment(bytes.data(), bytes.size());
    return Append(absl::MakeConstSpan(&fragment, 1));
  }
};

// A file that is read at any place. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // Reads up to out.size() bytes from `offset` on; fewer only at the end of the file.
  virtual absl::StatusOr<size_t> Read(uint64_t offset, absl::Span<char> out) const = 0;
  virtual absl::StatusOr<uint64_t> Size() const = 0;
};

// The file that is locked for a folder; it stays when the lock is given back.
inline constexpr char kFolderLockFile[] = "LOCK";

// Held while it lives; given back by the system when the process dies.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

// Thread-safe. Paths are the system's.
class Env {
 public:
  virtual ~Env() = default;

  // The machine's files; lives for the whole process.
  static Env& Real();

  // A new, empty file; what was there under this name is cut to nothing.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // NOT_FOUND if there is none.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) = 0;

  // Replaces `to`, at once or not at all. Durable once the folder is synced.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Delete(const std::string& path) = 0;
  // OK if it is there already. The parent must exist.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // The folder must be empty.
  virtual absl::Status DeleteFolder(const std::string& path) = 0;
  // Names of files and folders in it, without their path, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;
  // The names in the folder survive a loss of power: creations, renamings and deletions.
  virtual absl::Status SyncFolder(const std::string& folder) = 0;
  // NOT_FOUND if there is none.
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  // Keeps all other processes (and other callers in this one) from locking the folder. UNAVAILABLE,
  // with the way out, if another one holds it.
  virtual absl::StatusOr<std::unique_ptr<FolderLock>> LockFolder(const std::string& folder) = 0;
};

// "folder/name"; "name" if the folder is empty.
std::string JoinPath(absl::string_view folder, absl::string_view name);
// "a/b" of "a/b/c"; "." of "c"; "/" of "/c".
std::string FolderOf(absl::string_view path);

// The whole file. RESOURCE_EXHAUSTED beyond `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(Env& env, const std::string& path, uint64_t max_bytes);
// Creates or replaces `path` so that after a crash or loss of power it is either the old or the
// whole new file: writes "<path>.tmp", syncs it, renames it, syncs the folder. REQUIRES: nobody
// else writes `path` meanwhile.
absl::Status WriteFileDurably(Env& env, const std::string& path,
                              absl::Span<const WritableFile::Fragment> fragments);
absl::Status WriteFileDurably(Env& env, const std::string& path, absl::string_view text);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_ENV_H_
