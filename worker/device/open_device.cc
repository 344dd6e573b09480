#include "worker/device/open_device.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/device/cpu/device.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name) {
  if (name == "cpu") return std::unique_ptr<Device>(std::make_unique<CpuDevice>());
  if (absl::StartsWith(name, "cuda:")) {
    return absl::UnimplementedError(absl::StrCat("device \"", name, "\": this program is built without CUDA; use cpu"));
  }
  return absl::InvalidArgumentError(absl::StrCat("device \"", name, "\": must be cpu or cuda:N"));
}

}  // namespace pawl
