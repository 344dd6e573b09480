// Libraries of Pawl that are loaded on request, so that one binary runs on machines with and
// without NVIDIA's libraries.
#ifndef PAWL_WORKER_DEVICE_LOADABLE_LIBRARY_H_
#define PAWL_WORKER_DEVICE_LOADABLE_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pawl {

struct LoadableLibrary {
  std::string file;
  // The function that it exports.
  std::string function;
  // Bazel's folder of it, relative to the workspace root, with a slash at the end.
  std::string folder;
  // Prefixes of the names of NVIDIA's libraries that it needs, and how to install them.
  std::vector<std::string> needs;
  std::string remedy;
  // The alternative to it, for error messages.
  std::string instead;
};

// Where to look for it, in order: beside the program, in ../lib relative to its folder (a bundle),
// and where Bazel puts it.
std::vector<std::string> LibraryPaths(const LoadableLibrary& library);

struct LoadedLibrary {
  std::string path;
  void* function = nullptr;
};

// Loads the first existing library of `paths`, permanently, because its objects, even a status, may
// refer to it. Errors say how to fix them: UNIMPLEMENTED without the library, UNAVAILABLE without
// NVIDIA's driver, FAILED_PRECONDITION for a library with missing dependencies, or a different
// library.
absl::StatusOr<LoadedLibrary> Load(const LoadableLibrary& library,
                                   absl::Span<const std::string> paths);

// Turns the dynamic loader's message about the library at `path` into an error.
absl::Status LibraryLoadError(const LoadableLibrary& library, absl::string_view path,
                              absl::string_view message);

// The library reports the interface `other`, which differs from this program's:
// FAILED_PRECONDITION.
absl::Status OtherBuildError(absl::string_view path, absl::string_view other,
                             absl::string_view own);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_LOADABLE_LIBRARY_H_
