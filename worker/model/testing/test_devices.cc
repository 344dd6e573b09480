#include "worker/model/testing/test_devices.h"

#include "worker/device/cpu/device.h"
#include "worker/device/open_device.h"
#include "worker/device/testing/remote_memory_device.h"

#if defined(PAWL_HAS_EMULATED_CUDA) && !defined(PAWL_TSAN)
#include "worker/device/cuda/device.h"
#endif

namespace pawl {

std::vector<TestDevice> TestDevices() {
  using Reads = RemoteMemoryDevice::Reads;
  std::vector<TestDevice> devices = {
      {"Cpu", [] { return std::make_unique<CpuDevice>(); }},
      {"RemoteReadLate", [] { return std::make_unique<RemoteMemoryDevice>(Reads::kLate); }},
      {"RemoteReadInTheCall",
       [] { return std::make_unique<RemoteMemoryDevice>(Reads::kInTheCall); }},
  };
#if defined(PAWL_HAS_EMULATED_CUDA) && !defined(PAWL_TSAN)
  devices.push_back(
      {"EmulatedCuda", [] { return CudaDevice::Open(CudaDevice::Options()).value(); }, false});
#endif
  if (OpenDevice("cuda:0").ok()) {
    devices.push_back({"Cuda", [] { return OpenDevice("cuda:0").value(); }, false});
  }
  return devices;
}

}  // namespace pawl
