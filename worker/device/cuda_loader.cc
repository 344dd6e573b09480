#include "worker/device/cuda_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/device/cuda/library.h"
#include "worker/device/device_interface.h"

namespace pawl {
namespace {

// Where Bazel has it, from the workspace's root.
constexpr char kRunfile[] = "pawl/worker/device/cuda/";
constexpr char kDriver[] = "libcuda.so.1";

std::string LoaderError() {
  const char* const message = dlerror();
  return message == nullptr ? "" : message;
}

}  // namespace

std::vector<std::string> CudaLibraryPaths() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = program.parent_path().string();
  std::vector<std::string> folders = {absl::StrCat(folder, "/"), absl::StrCat(folder, "/../lib/")};
  for (const char* const variable : {"RUNFILES_DIR", "TEST_SRCDIR"}) {
    if (const char* const root = std::getenv(variable); root != nullptr)
      folders.push_back(absl::StrCat(root, "/", kRunfile));
  }
  folders.push_back(absl::StrCat(program.string(), ".runfiles/", kRunfile));
  for (std::string& path : folders) absl::StrAppend(&path, kCudaLibraryFile);
  return folders;
}

absl::Status CudaLoadError(absl::string_view path, absl::string_view message) {
  const bool lacks_another = absl::StrContains(message, "cannot open shared object file");
  if (lacks_another && (absl::StrContains(message, "libcublas") || absl::StrContains(message, "libcudart"))) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " needs NVIDIA's CUDA 13 libraries, and one was not found: ", message,
        "; install them (packages libcublas-13-0 and cuda-cudart-13-0, or the toolkit), or name their folder in "
        "LD_LIBRARY_PATH"));
  }
  return absl::FailedPreconditionError(absl::StrCat(path, " cannot be loaded: ", message));
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int number, CudaMath math, absl::Span<const std::string> paths) {
  const std::string* found = nullptr;
  for (const std::string& path : paths) {
    if (access(path.c_str(), F_OK) != 0) continue;
    found = &path;
    break;
  }
  if (found == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("this build has no ", kCudaLibraryFile,
                     " (it is built where NVIDIA's toolkit is; looked for: ", absl::StrJoin(paths, ", "), "); use cpu"));
  }
  // Loaded for good, as all below: what a device or a status is made of may lie there.
  if (dlopen(kDriver, RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no NVIDIA driver on this machine: ", kDriver, " was not found (", LoaderError(), "); use cpu"));
  }
  void* const library = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return CudaLoadError(*found, LoaderError());
  const auto open = reinterpret_cast<CudaLibraryFunction*>(dlsym(library, kCudaLibraryFunction));
  if (open == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(*found, " is another library: ", LoaderError()));
  }
  absl::StatusOr<std::unique_ptr<Device>> device = absl::InternalError("the library has opened nothing");
  if (const char* const other = open(kDeviceInterface, number, math, &device); other != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(*found, " belongs to another build of Pawl: its interface is ", other,
                                                      ", this program's ", kDeviceInterface, "; install both together"));
  }
  return device;
}

}  // namespace pawl
