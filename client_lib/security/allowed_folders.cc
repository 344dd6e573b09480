#include "client_lib/security/allowed_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr size_t kMaxShownPath = 512;

bool IsWithin(const std::filesystem::path& path, const std::filesystem::path& root) {
  if (!root.is_absolute()) return false;
  const auto end = std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first;
  // A root that ends with a slash has an empty last component.
  return end == root.end() || (end->empty() && std::next(end) == root.end());
}

absl::Status NotAllowed(const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat("dir ", BoundedText(path, kMaxShownPath),
                   " is in none of the folders of --checkpoint_roots"));
}

}  // namespace

AllowedFolders::AllowedFolders(std::vector<std::string> roots) : roots_(std::move(roots)) {
  const size_t given = roots_.size();
  for (size_t i = 0; i < given; ++i) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::weakly_canonical(roots_[i], error);
    // A path that is not absolute must not become one.
    if (!error && std::filesystem::path(roots_[i]).is_absolute())
      roots_.push_back(resolved.string());
  }
}

absl::Status AllowedFolders::CheckName(const std::string& path) const {
  if (path.empty() || path.front() != '/') {
    return absl::InvalidArgumentError(absl::StrCat("dir is '", BoundedText(path, kMaxShownPath),
                                                   "'; it must be an absolute path"));
  }
  if (roots_.empty()) return absl::OkStatus();
  const std::filesystem::path name = std::filesystem::path(path).lexically_normal();
  const bool is_within = std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) {
    return IsWithin(name, std::filesystem::path(root).lexically_normal());
  });
  return is_within ? absl::OkStatus() : NotAllowed(path);
}

absl::Status AllowedFolders::Check(const std::string& path) const {
  PAWL_RETURN_IF_ERROR(CheckName(path));
  if (roots_.empty()) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  const bool is_within =
      !error && std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) {
        std::error_code root_error;
        return IsWithin(resolved, std::filesystem::weakly_canonical(root, root_error)) &&
               !root_error;
      });
  return is_within ? absl::OkStatus() : NotAllowed(path);
}

}  // namespace pawl
