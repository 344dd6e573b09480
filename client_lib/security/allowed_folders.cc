#include "client_lib/security/allowed_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"

namespace pawl {
namespace {

constexpr size_t kMaxShownPath = 512;

bool IsWithin(const std::filesystem::path& path, const std::filesystem::path& root) {
  if (!root.is_absolute()) return false;
  const auto end = std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first;
  // A root that ends with a slash has an empty last component.
  return end == root.end() || (end->empty() && std::next(end) == root.end());
}

}  // namespace

absl::Status AllowedFolders::Check(const std::string& path) const {
  const std::string shown = BoundedText(path, kMaxShownPath);
  if (path.empty() || path.front() != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("dir is '", shown, "'; it must be an absolute path"));
  }
  if (roots_.empty()) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  const bool is_within =
      !error && std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) {
        std::error_code root_error;
        return IsWithin(resolved, std::filesystem::weakly_canonical(root, root_error)) &&
               !root_error;
      });
  if (is_within) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("dir ", shown, " is in none of the folders of --checkpoint_roots"));
}

}  // namespace pawl
