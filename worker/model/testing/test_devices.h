// The devices on which models are tested.
#ifndef PAWL_WORKER_MODEL_TESTING_TEST_DEVICES_H_
#define PAWL_WORKER_MODEL_TESTING_TEST_DEVICES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/device/device.h"

namespace pawl {

struct TestDevice {
  // Used in test names.
  std::string name;
  std::function<std::unique_ptr<Device>()> open;
  // Whether its results are bit-identical to the CPU's.
  bool has_cpu_bits = true;
};

// The CPU; the CPU with separate memory; in builds with NVIDIA's toolkit, the CUDA back end on its
// emulator; and the first GPU, if there is one.
std::vector<TestDevice> TestDevices();

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TESTING_TEST_DEVICES_H_
