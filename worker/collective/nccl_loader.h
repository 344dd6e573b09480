// Loads the NCCL back end, which is a separate library so that one binary runs on all machines.
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

// Where to look for libpawl_nccl.so, in order (LibraryPaths).
std::vector<std::string> NcclLibraryPaths();

// Loads the first existing library of `paths`, permanently, for GPU number `gpu`. Errors say how to
// fix them: UNIMPLEMENTED without the library, UNAVAILABLE without a driver or the GPU,
// FAILED_PRECONDITION for a library of another build, or one whose dependencies (NCCL) are missing.
absl::StatusOr<NcclBackEnd> OpenNccl(int gpu, absl::Span<const std::string> paths);

// Turns the dynamic loader's message about the library at `path` into an error. For OpenNccl.
absl::Status NcclLoadError(absl::string_view path, absl::string_view message);

// A name that no other machine has at the same time.
std::string ThisMachine();
// The machine's identity for NCCL: NCCL_HOSTID if it is set, even if empty. NCCL refuses members
// with the same GPU of the same machine.
std::string NcclMachine();

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_NCCL_LOADER_H_
