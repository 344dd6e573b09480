// Operations of a device as a step of training uses them, with what they cannot do without.
#ifndef PAWL_TESTS_GPU_KERNEL_CASES_H_
#define PAWL_TESTS_GPU_KERNEL_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/device/workspace.h"

namespace pawl {

struct KernelCase {
  // "PoolRowsBackward"
  std::string operation;
  // "65536 samples, 26 fields, width 16"
  std::string shape;
  // That must be read from and written to the device's memory at least, each once.
  double bytes = 0;
  // Multiplications and additions of a matrix product; 0 for all that memory alone limits.
  double operations = 0;
  std::function<void(Stream& stream)> run;
};

// Cases for batches of so many samples; their operands come from the workspace, and are on the
// device when the stream is synchronized.
absl::StatusOr<std::vector<KernelCase>> KernelCases(size_t samples, Stream& stream,
                                                    Workspace& workspace);

}  // namespace pawl

#endif  // PAWL_TESTS_GPU_KERNEL_CASES_H_
