// Folders in which peers and operators may make a process read and write files.
#ifndef PAWL_CLIENT_LIB_SECURITY_ALLOWED_FOLDERS_H_
#define PAWL_CLIENT_LIB_SECURITY_ALLOWED_FOLDERS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace pawl {

class AllowedFolders {
 public:
  // Empty: every folder.
  AllowedFolders() = default;
  // Absolute paths; others allow nothing.
  explicit AllowedFolders(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // OK if `path`, with symbolic links resolved, is one of the folders or in one. INVALID_ARGUMENT:
  // it is not absolute. PERMISSION_DENIED: it is outside; the message names the path, not the
  // folders.
  absl::Status Check(const std::string& path) const;

 private:
  std::vector<std::string> roots_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ALLOWED_FOLDERS_H_
