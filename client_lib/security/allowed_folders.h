// Folders in which peers and operators may make a process read and write files.
#ifndef PAWL_CLIENT_LIB_SECURITY_ALLOWED_FOLDERS_H_
#define PAWL_CLIENT_LIB_SECURITY_ALLOWED_FOLDERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pawl {

class AllowedFolders {
 public:
  // Empty: every folder.
  AllowedFolders() = default;
  // Absolute paths; others allow nothing. Resolves the symbolic links in them.
  explicit AllowedFolders(std::vector<std::string> roots);

  // OK if `path` is one of the folders or in one, by their names as given or resolved.
  // INVALID_ARGUMENT: it is not absolute. PERMISSION_DENIED: it is outside; the message names the
  // path, not the folders. Does not touch the file system, so gRPC's threads may call it; what
  // reads or writes the path calls Check.
  absl::Status CheckName(const std::string& path) const;

  // The same, with symbolic links in `path` resolved too. A file system that hangs blocks it.
  absl::Status Check(const std::string& path) const;

 private:
  // As given, followed by the same, resolved.
  std::vector<std::string> roots_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ALLOWED_FOLDERS_H_
