#include "worker/device/open_device.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/device/cpu/device.h"
#include "worker/device/cuda_loader.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name, CudaMath math,
                                                   GemmKernel kernel) {
  if (name == "cpu") return std::unique_ptr<Device>(std::make_unique<CpuDevice>(kernel));
  const std::optional<int> number = GpuNumber(name);
  if (!number.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", name, "\": must be cpu or cuda:N, N = 0 for the first GPU"));
  }
  absl::StatusOr<std::unique_ptr<Device>> device =
      OpenCudaDevice(*number, math, CudaLibraryPaths());
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat("device \"", name, "\": ", device.status().message()));
  }
  return device;
}

std::optional<int> GpuNumber(absl::string_view name) {
  int number = 0;
  if (!absl::ConsumePrefix(&name, "cuda:") || !absl::SimpleAtoi(name, &number) || number < 0)
    return std::nullopt;
  return number;
}

absl::StatusOr<CudaMath> ParseCudaMath(absl::string_view name) {
  if (name == "float32") return CudaMath::kFloat32;
  if (name == "tf32") return CudaMath::kTf32;
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": must be float32 or tf32"));
}

}  // namespace pawl
