// Kinds of collectives by the names that a user gives them.
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
  // NCCL for memory of the host, by way of the GPU, if there is a GPU and all that NCCL needs; Gloo
  // where a member has not.
  kAuto,
  kGloo,
  kNccl,
};

// "auto", "gloo" or "nccl". INVALID_ARGUMENT for another name.
absl::StatusOr<CollectivesChoice> ParseCollectives(absl::string_view name);

// What no two members of the kind may share: this machine's GPU at that place of the bus. Whoever
// asks for NCCL may play several machines on one of them (NCCL_HOSTID); nobody gets that by itself,
// for it is no way to be fast, and may hang.
std::string NcclExclusive(CollectivesChoice choice, absl::string_view gpu);

// The kind of this process's GPU, "nccl" and its version, for memory of the host. `device` is what
// OpenDevice has opened by the name `device_name`, and outlives all collectives. INVALID_ARGUMENT
// if that is no GPU; the errors of OpenNccl with `paths`.
absl::StatusOr<CollectiveKind> OpenNcclKind(CollectivesChoice choice, absl::string_view device_name,
                                            Device& device, absl::Span<const std::string> paths);

// What this process offers to the others of its groups, in the order of preference. `nccl`:
// OpenNcclKind, called unless Gloo is chosen or auto finds no GPU; its error is that of kNccl, and
// kAuto does without. Logs which it is, and why.
absl::StatusOr<std::vector<CollectiveKind>> OpenCollectives(
    CollectivesChoice choice, absl::string_view device_name,
    const std::function<absl::StatusOr<CollectiveKind>()>& nccl, CollectiveKind gloo);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_OPEN_COLLECTIVES_H_
