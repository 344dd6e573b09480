// Opens devices by the names that users give them.
#ifndef PAWL_WORKER_DEVICE_OPEN_DEVICE_H_
#define PAWL_WORKER_DEVICE_OPEN_DEVICE_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/cpu/gemm/gemm.h"
#include "worker/device/cuda/library.h"
#include "worker/device/device.h"

namespace pawl {

// Opens "cpu", or "cuda:N" for GPU number N, from 0. INVALID_ARGUMENT for another name; for a GPU
// the errors of OpenCudaDevice. `math` applies to GPUs, `kernel` to the CPU.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(
    absl::string_view name, CudaMath math = CudaMath::kFloat32,
    GemmKernel kernel = SupportedGemmKernels().back());

// N of "cuda:N"; nothing for any other name.
std::optional<int> GpuNumber(absl::string_view name);

// Parses "float32" or "tf32". INVALID_ARGUMENT for another name.
absl::StatusOr<CudaMath> ParseCudaMath(absl::string_view name);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_OPEN_DEVICE_H_
