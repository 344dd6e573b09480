#include "worker/collective/open_collectives.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/collective/nccl_loader.h"
#include "worker/collective/staged_collective.h"
#include "worker/device/open_device.h"

namespace pawl {
namespace {

// NCCL examines the machine and loads its kernels first, every time.
constexpr std::chrono::seconds kNcclConnectTimeout{60};

}  // namespace

absl::StatusOr<CollectivesChoice> ParseCollectives(absl::string_view name) {
  if (name == "auto") return CollectivesChoice::kAuto;
  if (name == "gloo") return CollectivesChoice::kGloo;
  if (name == "nccl") return CollectivesChoice::kNccl;
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": must be auto, gloo or nccl"));
}

std::string NcclExclusive(CollectivesChoice choice, absl::string_view gpu) {
  const std::string machine = choice == CollectivesChoice::kNccl ? NcclMachine() : ThisMachine();
  return absl::StrCat("GPU ", gpu, " of machine \"", machine, "\"");
}

absl::StatusOr<CollectiveKind> OpenNcclKind(CollectivesChoice choice, absl::string_view device_name,
                                            Device& device, absl::Span<const std::string> paths) {
  const std::optional<int> gpu = GpuNumber(device_name);
  if (!gpu.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL needs a GPU, and this worker computes on \"", device_name,
                     "\": use --device=cuda:N"));
  }
  PAWL_ASSIGN_OR_RETURN(NcclBackEnd opened, OpenNccl(*gpu, paths));
  spdlog::info("NCCL {} on {} ({})", opened.version, std::string(device_name), opened.gpu);
  // Members with different versions refuse each other.
  return CollectiveKind{.name = absl::StrCat("nccl ", opened.version),
                        .exclusive = NcclExclusive(choice, opened.gpu),
                        .make = StagedCollectives(std::move(opened.make), device),
                        .connect_timeout = kNcclConnectTimeout};
}

absl::StatusOr<std::vector<CollectiveKind>> OpenCollectives(
    CollectivesChoice choice, absl::string_view device_name,
    const std::function<absl::StatusOr<CollectiveKind>()>& nccl, CollectiveKind gloo) {
  std::vector<CollectiveKind> kinds;
  if (choice == CollectivesChoice::kNccl ||
      (choice == CollectivesChoice::kAuto && GpuNumber(device_name).has_value())) {
    absl::StatusOr<CollectiveKind> opened = nccl();
    if (opened.ok()) {
      kinds.push_back(*std::move(opened));
    } else if (choice == CollectivesChoice::kNccl) {
      return opened.status();
    } else {
      spdlog::warn("collectives use Gloo, because NCCL is not available: {}",
                   std::string(opened.status().message()));
    }
  }
  if (choice != CollectivesChoice::kNccl) kinds.push_back(std::move(gloo));
  return kinds;
}

}  // namespace pawl
