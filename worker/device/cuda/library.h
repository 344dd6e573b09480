// The one function of libpawl_cuda.so, which is loaded only where a GPU is asked for.
#ifndef PAWL_WORKER_DEVICE_CUDA_LIBRARY_H_
#define PAWL_WORKER_DEVICE_CUDA_LIBRARY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/cuda_math.h"
#include "worker/device/device.h"

namespace pawl {

inline constexpr char kCudaLibraryFile[] = "libpawl_cuda.so";
inline constexpr char kCudaLibraryFunction[] = "PawlOpenCudaDevice";

// Sets *device, or its status to why there is none (CudaDevice::Open). `interface` is the caller's
// kDeviceInterface: with another one than the library's, what both mean by a Device is not the
// same, and nothing else is touched: returns the library's. Otherwise returns null.
using CudaLibraryFunction = const char*(const char* interface, int number, CudaMath math,
                                        absl::StatusOr<std::unique_ptr<Device>>* device);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_LIBRARY_H_
