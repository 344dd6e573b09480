// Libraries of Pawl's own that are loaded when they are asked for, so that one binary runs on
// machines with and without NVIDIA's libraries.
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
  // The one that it exports.
  std::string function;
  // Where Bazel has it, from the workspace's root, with a slash at the end.
  std::string folder;
  // NVIDIA's libraries that it needs, as the loader calls them (their beginnings), and how to get
  // them.
  std::vector<std::string> needs;
  std::string remedy;
  // What to do without it.
  std::string instead;
};

// Where it may lie, in the order in which it is looked for: beside the program, in ../lib beside
// its folder (a bundle), and where Bazel puts it.
std::vector<std::string> LibraryPaths(const LoadableLibrary& library);

struct LoadedLibrary {
  std::string path;
  void* function = nullptr;
};

// Loads the first of `paths` that there is, for good: what it makes, a status too, may lie there.
// Errors say what is to be done: UNIMPLEMENTED without the library, UNAVAILABLE without NVIDIA's
// driver, FAILED_PRECONDITION for one whose own libraries are missing, or that is another library.
absl::StatusOr<LoadedLibrary> Load(const LoadableLibrary& library,
                                   absl::Span<const std::string> paths);

// Why the library at `path` could not be loaded, from what the loader says.
absl::Status LibraryLoadError(const LoadableLibrary& library, absl::string_view path,
                              absl::string_view message);

// It says that its interface is `other`, and not this program's: FAILED_PRECONDITION.
absl::Status OtherBuildError(absl::string_view path, absl::string_view other,
                             absl::string_view own);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_LOADABLE_LIBRARY_H_
