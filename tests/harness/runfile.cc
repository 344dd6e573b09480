#include "tests/harness/runfile.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pawl {
namespace {

constexpr char kWorkspace[] = "pawl";
constexpr int kMaxFolders = 10000;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<std::string> Runfile(const std::string& path) {
  std::error_code error;
  std::vector<std::string> roots;
  if (const std::string tests = Environment("TEST_SRCDIR"); !tests.empty()) {
    roots.push_back(absl::StrCat(tests, "/", kWorkspace));
  }
  roots.push_back(absl::StrCat(std::filesystem::read_symlink("/proc/self/exe", error).string(),
                               ".runfiles/", kWorkspace));
  roots.push_back(std::filesystem::current_path(error).string());
  for (const std::string& root : roots) {
    if (const std::string found = absl::StrCat(root, "/", path); access(found.c_str(), F_OK) == 0)
      return found;
  }
  return absl::NotFoundError(absl::StrCat(path, " is in none of ", absl::StrJoin(roots, ", "),
                                          ": is it among the target's data?"));
}

absl::StatusOr<std::string> MakeOutputFolder(const std::string& name) {
  std::string root = Environment("TEST_UNDECLARED_OUTPUTS_DIR");
  if (root.empty()) root = Environment("TEST_TMPDIR");
  if (root.empty())
    root = absl::StrCat(std::filesystem::temp_directory_path().string(), "/pawl-", getpid());
  for (int number = 0; number < kMaxFolders; ++number) {
    std::string folder = absl::StrCat(root, "/", name, "-", number);
    std::error_code error;
    if (std::filesystem::create_directories(folder, error)) return folder;
    if (error)
      return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", kMaxFolders, " folders ", root, "/", name, "-N"));
}

}  // namespace pawl
