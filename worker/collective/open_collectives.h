// Opens the kinds of collectives that a user selects by name.
#ifndef PAWL_WORKER_COLLECTIVE_OPEN_COLLECTIVES_H_
#define PAWL_WORKER_COLLECTIVE_OPEN_COLLECTIVES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/collective_kind.h"
#include "worker/device/device.h"

namespace pawl {

enum class CollectivesChoice {
  // NCCL if there is a GPU and everything that NCCL needs, with Gloo as the fallback if another
  // member lacks it.
  kAuto,
  kGloo,
  kNccl,
};

// Parses "auto", "gloo" or "nccl". INVALID_ARGUMENT for another name.
absl::StatusOr<CollectivesChoice> ParseCollectives(absl::string_view name);

// The resource that no two members of the kind may share: this machine's GPU at that bus address.
// With an explicit choice of NCCL, NCCL_HOSTID may make one GPU look like several machines. That is
// not the default, because it is slow and may hang.
std::string NcclExclusive(CollectivesChoice choice, absl::string_view gpu);

// The kind of this process's GPU, named "nccl" and its version, for host memory. `device` was
// opened by OpenDevice as `device_name`, and outlives all collectives. INVALID_ARGUMENT if that is
// not a GPU; otherwise the errors of OpenNccl with `paths`.
absl::StatusOr<CollectiveKind> OpenNcclKind(CollectivesChoice choice, absl::string_view device_name,
                                            Device& device, absl::Span<const std::string> paths);

// The kinds that this process offers to its groups, in order of preference. Calls `nccl`
// (OpenNcclKind) unless Gloo is chosen or auto finds no GPU. kNccl returns its error; kAuto falls
// back to Gloo. Logs the result and the reason.
absl::StatusOr<std::vector<CollectiveKind>> OpenCollectives(
    CollectivesChoice choice, absl::string_view device_name,
    const std::function<absl::StatusOr<CollectiveKind>()>& nccl, CollectiveKind gloo);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_OPEN_COLLECTIVES_H_
