#include "worker/collective/nccl/library.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "cuda_runtime.h"
#include "nccl.h"
#include "worker/collective/collective_interface.h"
#include "worker/collective/nccl/collective.h"

namespace {

// "00000000:3b:00.0" and a null.
constexpr int kBusIdBytes = 32;

absl::StatusOr<pawl::NcclBackEnd> Open(int gpu) {
  char bus_id[kBusIdBytes] = {};
  if (const cudaError_t error = cudaDeviceGetPCIBusId(bus_id, kBusIdBytes, gpu);
      error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("NCCL: GPU ", gpu, " is not available: ", cudaGetErrorString(error)));
  }
  int version = 0;
  if (const ncclResult_t error = ncclGetVersion(&version); error != ncclSuccess) {
    return absl::UnavailableError(
        absl::StrCat("NCCL does not report its version: ", ncclGetErrorString(error)));
  }
  pawl::NcclBackEnd opened;
  opened.version = absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  opened.gpu = bus_id;
  opened.make = [gpu](
                    size_t size,
                    size_t place) -> absl::StatusOr<std::unique_ptr<pawl::ConnectableCollective>> {
    return pawl::NcclCollective::Create({.size = size, .place = place, .device = gpu});
  };
  return opened;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* PawlOpenNccl(
    const char* interface, int gpu, absl::StatusOr<pawl::NcclBackEnd>* opened) {
  if (std::strcmp(interface, pawl::kCollectiveInterface) != 0) return pawl::kCollectiveInterface;
  *opened = Open(gpu);
  return nullptr;
}
