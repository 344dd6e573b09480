// The single function of libpawl_nccl.so, which is loaded only if NCCL is requested.
#ifndef PAWL_WORKER_COLLECTIVE_NCCL_LIBRARY_H_
#define PAWL_WORKER_COLLECTIVE_NCCL_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/collective/connectable_collective.h"

namespace pawl {

inline constexpr char kNcclLibraryFile[] = "libpawl_nccl.so";
inline constexpr char kNcclLibraryFunction[] = "PawlOpenNccl";

// NCCL with one of this machine's GPUs.
struct NcclBackEnd {
  // NCCL's version, such as 2.28.3.
  std::string version;
  // Identifies the GPU on the machine, independent of its number in this process: its bus address.
  std::string gpu;
  // Creates members that take the GPU's memory (NcclCollective).
  CollectiveFactory make;
};

// Sets *opened to the back end or to an error. `interface` is the caller's kCollectiveInterface. If
// it differs from the library's, both have different definitions of Collective: nothing else is
// touched, and the library's is returned. Otherwise returns null.
using NcclLibraryFunction = const char*(const char* interface, int gpu,
                                        absl::StatusOr<NcclBackEnd>* opened);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_NCCL_LIBRARY_H_
