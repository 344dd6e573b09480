// The one function of libpawl_nccl.so, which is loaded only where collectives by NCCL are asked
// for.
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
  // Of NCCL, as its makers write it: 2.28.3.
  std::string version;
  // Which of the machine's GPUs it is, whatever number it has for this process: its place on the
  // bus.
  std::string gpu;
  // Members whose memory is the GPU's (NcclCollective).
  CollectiveFactory make;
};

// Sets *opened, or its status to why there is none. `interface` is the caller's
// kCollectiveInterface: with another one than the library's, what both mean by a Collective is not
// the same, and nothing else is touched: returns the library's. Otherwise returns null.
using NcclLibraryFunction = const char*(const char* interface, int gpu,
                                        absl::StatusOr<NcclBackEnd>* opened);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_NCCL_LIBRARY_H_
