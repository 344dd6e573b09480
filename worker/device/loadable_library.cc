#include "worker/device/loadable_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pawl {
namespace {

constexpr char kDriver[] = "libcuda.so.1";

std::string LoaderError() {
  const char* const message = dlerror();
  return message == nullptr ? "" : message;
}

}  // namespace

std::vector<std::string> LibraryPaths(const LoadableLibrary& library) {
  const std::string runfile = absl::StrCat("pawl/", library.folder);
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = program.parent_path().string();
  std::vector<std::string> folders = {absl::StrCat(folder, "/"), absl::StrCat(folder, "/../lib/")};
  for (const char* const variable : {"RUNFILES_DIR", "TEST_SRCDIR"}) {
    if (const char* const root = std::getenv(variable); root != nullptr)
      folders.push_back(absl::StrCat(root, "/", runfile));
  }
  folders.push_back(absl::StrCat(program.string(), ".runfiles/", runfile));
  for (std::string& path : folders) absl::StrAppend(&path, library.file);
  return folders;
}

absl::Status LibraryLoadError(const LoadableLibrary& library, absl::string_view path,
                              absl::string_view message) {
  const bool lacks_another =
      absl::StrContains(message, "cannot open shared object file") &&
      std::any_of(library.needs.begin(), library.needs.end(),
                  [&](const std::string& needed) { return absl::StrContains(message, needed); });
  if (lacks_another) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " needs NVIDIA's libraries, but one was not found: ", message, "; ",
                     library.remedy, ", or add their folder to LD_LIBRARY_PATH"));
  }
  return absl::FailedPreconditionError(absl::StrCat(path, " cannot be loaded: ", message));
}

absl::Status OtherBuildError(absl::string_view path, absl::string_view other,
                             absl::string_view own) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " belongs to another build of Pawl: its interface is ", other,
                   ", this program's ", own, "; install both together"));
}

absl::StatusOr<LoadedLibrary> Load(const LoadableLibrary& library,
                                   absl::Span<const std::string> paths) {
  const std::string* found = nullptr;
  for (const std::string& path : paths) {
    if (access(path.c_str(), F_OK) != 0) continue;
    found = &path;
    break;
  }
  if (found == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "this build has no ", library.file, " (it is built only with NVIDIA's toolkit; searched: ",
        absl::StrJoin(paths, ", "), "); ", library.instead));
  }
  if (dlopen(kDriver, RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return absl::UnavailableError(absl::StrCat("no NVIDIA driver on this machine: ", kDriver,
                                               " was not found (", LoaderError(), "); ",
                                               library.instead));
  }
  void* const handle = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return LibraryLoadError(library, *found, LoaderError());
  void* const function = dlsym(handle, library.function.c_str());
  if (function == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(*found, " is a different library: ", LoaderError()));
  }
  return LoadedLibrary{*found, function};
}

}  // namespace pawl
