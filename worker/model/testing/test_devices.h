// The devices that models are tested on.
#ifndef PAWL_WORKER_MODEL_TESTING_TEST_DEVICES_H_
#define PAWL_WORKER_MODEL_TESTING_TEST_DEVICES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/device/device.h"

namespace pawl {

struct TestDevice {
  // For the names of tests.
  std::string name;
  std::function<std::unique_ptr<Device>()> open;
  // Its results are the CPU's, bit for bit.
  bool has_cpu_bits = true;
};

// The CPU; the CPU with memory of its own; where this is built with NVIDIA's toolkit, the CUDA back
// end on its emulator; and the first GPU, where there is one.
std::vector<TestDevice> TestDevices();

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TESTING_TEST_DEVICES_H_
