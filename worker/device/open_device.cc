#include "worker/device/open_device.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/device/cpu/device.h"
#include "worker/device/cuda_loader.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name, CudaMath math) {
  if (name == "cpu") return std::unique_ptr<Device>(std::make_unique<CpuDevice>());
  absl::string_view rest = name;
  int number = 0;
  if (!absl::ConsumePrefix(&rest, "cuda:") || !absl::SimpleAtoi(rest, &number) || number < 0) {
    return absl::InvalidArgumentError(absl::StrCat("device \"", name, "\": must be cpu or cuda:N, N = 0 for the first GPU"));
  }
  absl::StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice(number, math, CudaLibraryPaths());
  if (!device.ok()) {
    return absl::Status(device.status().code(), absl::StrCat("device \"", name, "\": ", device.status().message()));
  }
  return device;
}

absl::StatusOr<CudaMath> ParseCudaMath(absl::string_view name) {
  if (name == "float32") return CudaMath::kFloat32;
  if (name == "tf32") return CudaMath::kTf32;
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": must be float32 or tf32"));
}

}  // namespace pawl
