// Loads the collectives by NCCL, a library of its own, so that one binary runs on all machines.
#ifndef PAWL_WORKER_COLLECTIVE_NCCL_LOADER_H_
#define PAWL_WORKER_COLLECTIVE_NCCL_LOADER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collective/nccl/library.h"

namespace pawl {

// Where libpawl_nccl.so may lie, in the order in which it is looked for (LibraryPaths).
std::vector<std::string> NcclLibraryPaths();

// Loads the first of `paths` that there is, for good, for the GPU of this number. Errors say what
// is to be done: UNIMPLEMENTED without the library, UNAVAILABLE without a driver or such a GPU,
// FAILED_PRECONDITION for a library of another build, or one whose own libraries (NCCL) are
// missing.
absl::StatusOr<NcclBackEnd> OpenNccl(int gpu, absl::Span<const std::string> paths);

// Why the library at `path` could not be loaded, from what the loader says. For OpenNccl.
absl::Status NcclLoadError(absl::string_view path, absl::string_view message);

// What no other machine is called at the same time.
std::string ThisMachine();
// As what NCCL takes this machine: NCCL_HOSTID where it is set, be it empty. It refuses members
// with the same GPU of the same machine.
std::string NcclMachine();

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_NCCL_LOADER_H_
