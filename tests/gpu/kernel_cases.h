// A device's operations as used in a training step, with the memory traffic and arithmetic that
// they require.
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
  // The minimum traffic with the device's memory, each byte once.
  double bytes = 0;
  // Multiplications and additions of a matrix product; 0 for operations limited only by memory.
  double operations = 0;
  std::function<void(Stream& stream)> run;
};

// Returns the cases for batches of this size. Their operands come from the workspace and are on the
// device once the stream is synchronized.
absl::StatusOr<std::vector<KernelCase>> KernelCases(size_t samples, Stream& stream,
                                                    Workspace& workspace);

}  // namespace pawl

#endif  // PAWL_TESTS_GPU_KERNEL_CASES_H_
