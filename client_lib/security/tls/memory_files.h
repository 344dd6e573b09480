// Copies in memory of the files of a --tls_dir, which gRPC reads by path.
#ifndef PAWL_CLIENT_LIB_SECURITY_TLS_MEMORY_FILES_H_
#define PAWL_CLIENT_LIB_SECURITY_TLS_MEMORY_FILES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pawl {

// A file in memory whose path stays the same while its content is replaced. gRPC can reload
// certificates only from files, and takes any that are there: this process gives it copies that
// have been checked, and no key reaches another file. Not thread-safe.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : name_(name) {}
  // Keeps the descriptor open: gRPC reads the path until it has let go of the last channel, on a
  // thread of its own, and another file must not get the number before.
  ~MemoryFile() = default;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // A reader gets either the previous content or all of this one.
  absl::Status Replace(absl::string_view content);

  // REQUIRES: Replace has succeeded.
  std::string path() const;

 private:
  absl::Status WriteAll(int descriptor, absl::string_view content) const;

  const char* const name_;
  int descriptor_ = -1;
};

struct MemoryFiles {
  MemoryFile authorities{"ca.pem"};
  MemoryFile certificate{"cert.pem"};
  MemoryFile key{"key.pem"};
};

// Lends the files of a folder to one user at a time; the destructor returns them, and the next user
// of the same folder (by device and inode) gets them. So a program that opens a folder again and
// again needs no further descriptors. Thread-safe, apart from the files themselves.
class MemoryFilesLease {
 public:
  explicit MemoryFilesLease(const std::string& folder);
  ~MemoryFilesLease();
  MemoryFilesLease(const MemoryFilesLease&) = delete;
  MemoryFilesLease& operator=(const MemoryFilesLease&) = delete;

  MemoryFiles& files() { return *files_; }

 private:
  const std::string key_;
  std::unique_ptr<MemoryFiles> files_;
};

// Identifies the file or folder at `path` within this process's life: device and inode, or the path
// itself if it does not exist.
std::string FileKey(const std::string& path);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TLS_MEMORY_FILES_H_
