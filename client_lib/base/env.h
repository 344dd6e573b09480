// The file system as an interface, so that tests can lose what was not synced.
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

// The error of a system call on a file; names the operation, the file and errno's text.
//   NOT_FOUND            ENOENT
//   ALREADY_EXISTS       EEXIST
//   PERMISSION_DENIED    EACCES, EPERM, EROFS
//   INVALID_ARGUMENT     ENOTDIR, ENAMETOOLONG, ELOOP, EINVAL: the path is invalid
//   FAILED_PRECONDITION  EISDIR, ENOTEMPTY, EFBIG, ENODEV, ENXIO, EOPNOTSUPP: not that kind of file
//   RESOURCE_EXHAUSTED   ENOSPC, EDQUOT, EMFILE, ENFILE
//   DATA_LOSS            EIO
//   UNAVAILABLE          all others: a retry may succeed
absl::Status FileError(absl::string_view operation, absl::string_view path, int error_number);

// A file that is written at its end. Not thread-safe. The destructor closes without syncing.
class WritableFile {
 public:
  using Fragment = absl::Span<const char>;

  virtual ~WritableFile() = default;

  // Appends the fragments, in order. After an error the content beyond size() is undefined, and
  // Truncate(size()) must succeed before the next Append.
  virtual absl::Status Append(absl::Span<const Fragment> fragments) = 0;
  // Makes what was appended survive power loss. After an error the file is unusable: unsynced data
  // may be lost although it can still be read, so every later Append, Sync and Truncate fails too.
  virtual absl::Status Sync() = 0;
  // Truncates the file to `size` bytes. REQUIRES: size <= size().
  virtual absl::Status Truncate(uint64_t size) = 0;
  virtual absl::Status Close() = 0;
  // The bytes that Append has written successfully.
  virtual uint64_t size() const = 0;

  absl::Status Append(absl::string_view bytes) {
    const Fragment fragment(bytes.data(), bytes.size());
    return Append(absl::MakeConstSpan(&fragment, 1));
  }
};

// A file for random reads. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // Reads up to out.size() bytes from `offset`; fewer only at the end of the file.
  virtual absl::StatusOr<size_t> Read(uint64_t offset, absl::Span<char> out) const = 0;
  virtual absl::StatusOr<uint64_t> Size() const = 0;
};

// The name of a folder's lock file, which remains after the lock is released.
inline constexpr char kFolderLockFile[] = "LOCK";

// Holds the lock until destroyed. The system releases it when the process dies.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

// Thread-safe. Paths are those of the system.
class Env {
 public:
  virtual ~Env() = default;

  // The machine's file system; never destroyed.
  static Env& Real();

  // Creates an empty file, or truncates an existing one.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // NOT_FOUND if the file does not exist.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) = 0;

  // Replaces `to` atomically. Durable once the folder is synced.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Delete(const std::string& path) = 0;
  // OK if the folder exists. Its parent must exist.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // The folder must be empty.
  virtual absl::Status DeleteFolder(const std::string& path) = 0;
  // The names of files and folders in `folder`, without path, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;
  // Makes the folder's names survive power loss: creations, renames and deletions.
  virtual absl::Status SyncFolder(const std::string& folder) = 0;
  // NOT_FOUND if the file does not exist.
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  // Drops the file's synced bytes from the system's cache: the next read is one of the disk, and
  // the memory is free for others. A hint, which some file systems ignore. After a failed sync it
  // may lose what the disk does not have.
  virtual void DropCached(const std::string& path) = 0;
  // Prevents all other processes, and other callers in this one, from locking the folder.
  // UNAVAILABLE, with advice, if it is locked.
  virtual absl::StatusOr<std::unique_ptr<FolderLock>> LockFolder(const std::string& folder) = 0;
};

// "folder/name"; "name" if the folder is empty.
std::string JoinPath(absl::string_view folder, absl::string_view name);
// The parent: "a/b" for "a/b/c", "." for "c", "/" for "/c".
std::string FolderOf(absl::string_view path);

// Whether there is a file or a folder of that name. An error if the file system does not answer.
absl::StatusOr<bool> FileExists(Env& env, const std::string& path);

// Returns the whole file. RESOURCE_EXHAUSTED beyond `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(Env& env, const std::string& path, uint64_t max_bytes);
// Creates or replaces `path` so that after a crash or power loss it is either the old or the whole
// new file: writes "<path>.tmp", syncs it, renames it, and syncs the folder. REQUIRES: no
// concurrent writer of `path`.
absl::Status WriteFileDurably(Env& env, const std::string& path,
                              absl::Span<const WritableFile::Fragment> fragments);
absl::Status WriteFileDurably(Env& env, const std::string& path, absl::string_view text);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_ENV_H_
