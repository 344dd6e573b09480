// Compares a device's operations with the CPU's: for tests, and for a check on a machine with a
// GPU.
#ifndef PAWL_WORKER_DEVICE_TESTING_KERNEL_CHECKS_H_
#define PAWL_WORKER_DEVICE_TESTING_KERNEL_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"

namespace pawl {

struct KernelCheck {
  // "PoolRowsBackward"
  std::string operation;
  // Comparisons made, of a size and shape each.
  int cases = 0;
  // The largest difference of an element from the CPU's, in units of what float32 arithmetic lets
  // one expect: above 1 is an error. 0: the same bits.
  double worst = 0;
  absl::Status status;
};

// Every operation of Stream on random operands of sizes that are odd, empty and worst (one key for
// all entries), with and without alignment and padding. `largest` bounds the sizes: entries, rows.
// The same seed makes the same operands.
std::vector<KernelCheck> CheckKernels(Device& device, size_t largest, uint32_t seed);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_TESTING_KERNEL_CHECKS_H_
