// The single function of libpawl_cuda.so, which is loaded only if a GPU is requested.
#ifndef PAWL_WORKER_DEVICE_CUDA_LIBRARY_H_
#define PAWL_WORKER_DEVICE_CUDA_LIBRARY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace pawl {

// How a GPU multiplies float32 matrices.
enum class CudaMath {
  // In float32, with 24 bits of mantissa throughout.
  kFloat32,
  // On the tensor cores, which round the factors to TF32 (11 bits of mantissa) and add in float32;
  // several times faster.
  kTf32,
};

inline constexpr char kCudaLibraryFile[] = "libpawl_cuda.so";
inline constexpr char kCudaLibraryFunction[] = "PawlOpenCudaDevice";

// Sets *device to the device or to an error (CudaDevice::Open). `interface` is the caller's
// kDeviceInterface. If it differs from the library's, both have different definitions of Device:
// nothing else is touched, and the library's is returned. Otherwise returns null.
using CudaLibraryFunction = const char*(const char* interface, int number, CudaMath math,
                                        absl::StatusOr<std::unique_ptr<Device>>* device);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_LIBRARY_H_
