#include "worker/device/cuda/library.h"

#include <cstring>
#include <utility>

#include "worker/device/cuda/device.h"
#include "worker/device/device_interface.h"

extern "C" __attribute__((visibility("default"))) const char* PawlOpenCudaDevice(
    const char* interface, int number, pawl::CudaMath math,
    absl::StatusOr<std::unique_ptr<pawl::Device>>* device) {
  if (std::strcmp(interface, pawl::kDeviceInterface) != 0) return pawl::kDeviceInterface;
  pawl::CudaDevice::Options options;
  options.number = number;
  options.math = math;
  absl::StatusOr<std::unique_ptr<pawl::CudaDevice>> opened = pawl::CudaDevice::Open(options);
  if (opened.ok()) {
    *device = std::unique_ptr<pawl::Device>(*std::move(opened));
  } else {
    *device = opened.status();
  }
  return nullptr;
}
