// Loads the CUDA back end, a library of its own, so that one binary runs on all machines.
#ifndef PAWL_WORKER_DEVICE_CUDA_LOADER_H_
#define PAWL_WORKER_DEVICE_CUDA_LOADER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/device/cuda_math.h"
#include "worker/device/device.h"

namespace pawl {

// Where libpawl_cuda.so may lie, in the order in which it is looked for: beside the program, in
// ../lib beside its folder (a bundle), and where Bazel puts it.
std::vector<std::string> CudaLibraryPaths();

// Loads the first of `paths` that there is, for good, and opens the GPU of this number. Errors say
// what is to be done: UNIMPLEMENTED without the library, UNAVAILABLE without a driver or a GPU that
// works, FAILED_PRECONDITION for a library of another build, one whose own libraries are missing,
// or a GPU that is too old, NOT_FOUND without a GPU of the number.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int number, CudaMath math,
                                                       absl::Span<const std::string> paths);

// Why the library at `path` could not be loaded, from what the loader says. For OpenCudaDevice.
absl::Status CudaLoadError(absl::string_view path, absl::string_view message);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_LOADER_H_
