// Loads the CUDA back end, which is a separate library so that one binary runs on all machines.
#ifndef PAWL_WORKER_DEVICE_CUDA_LOADER_H_
#define PAWL_WORKER_DEVICE_CUDA_LOADER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/device/cuda/library.h"
#include "worker/device/device.h"

namespace pawl {

// Where to look for libpawl_cuda.so, in order: beside the program, in ../lib relative to its folder
// (a bundle), and where Bazel puts it.
std::vector<std::string> CudaLibraryPaths();

// Loads the first existing library of `paths`, permanently, and opens GPU number `number`. Errors
// say how to fix them: UNIMPLEMENTED without the library, UNAVAILABLE without a driver or a working
// GPU, FAILED_PRECONDITION for a library of another build, missing dependencies of the library or a
// GPU that is too old, NOT_FOUND without a GPU of that number.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int number, CudaMath math,
                                                       absl::Span<const std::string> paths);

// Turns the dynamic loader's message about the library at `path` into an error. For OpenCudaDevice.
absl::Status CudaLoadError(absl::string_view path, absl::string_view message);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_LOADER_H_
