#include "worker/device/cuda_loader.h"

#include "client_lib/base/status_macros.h"
#include "worker/device/cuda/library.h"
#include "worker/device/device_interface.h"
#include "worker/device/loadable_library.h"

namespace pawl {
namespace {

const LoadableLibrary& CudaLibrary() {
  static const LoadableLibrary* const library = new LoadableLibrary{
      .file = kCudaLibraryFile,
      .function = kCudaLibraryFunction,
      .folder = "worker/device/cuda/",
      .needs = {"libcublas", "libcudart"},
      .remedy =
          "install those of CUDA 13 (packages libcublas-13-0 and cuda-cudart-13-0, or the toolkit)",
      .instead = "use cpu",
  };
  return *library;
}

}  // namespace

std::vector<std::string> CudaLibraryPaths() { return LibraryPaths(CudaLibrary()); }

absl::Status CudaLoadError(absl::string_view path, absl::string_view message) {
  return LibraryLoadError(CudaLibrary(), path, message);
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int number, CudaMath math,
                                                       absl::Span<const std::string> paths) {
  PAWL_ASSIGN_OR_RETURN(const LoadedLibrary loaded, Load(CudaLibrary(), paths));
  const auto open = reinterpret_cast<CudaLibraryFunction*>(loaded.function);
  absl::StatusOr<std::unique_ptr<Device>> device =
      absl::InternalError("the library returned no device");
  if (const char* const other = open(kDeviceInterface, number, math, &device); other != nullptr) {
    return OtherBuildError(loaded.path, other, kDeviceInterface);
  }
  return device;
}

}  // namespace pawl
