// Compares a device's operations with the CPU's, in tests and in a check on machines with a GPU.
#ifndef PAWL_WORKER_DEVICE_TESTING_KERNEL_CHECKS_H_
#define PAWL_WORKER_DEVICE_TESTING_KERNEL_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"

namespace pawl {

struct KernelCheck {
  // Such as "PoolRowsBackward".
  std::string operation;
  // Number of comparisons, each of one size and shape.
  int cases = 0;
  // The largest difference from the CPU's result, in units of the expected float32 error: above 1
  // is an error. 0: the same bits.
  double worst = 0;
  absl::Status status;
};

// Runs every operation of Stream on random operands, including odd, empty and worst-case sizes (one
// key for all entries), with and without alignment and padding. `largest` bounds the sizes:
// entries, rows. The operands are determined by the seed.
std::vector<KernelCheck> CheckKernels(Device& device, size_t largest, uint32_t seed);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_TESTING_KERNEL_CHECKS_H_
