// The device of the trainers' tests, which are built for two devices.
#ifndef PAWL_WORKER_TRAIN_TESTING_TRAINER_DEVICE_H_
#define PAWL_WORKER_TRAIN_TESTING_TRAINER_DEVICE_H_

#include <memory>

#include "worker/device/cpu/device.h"
#include "worker/device/device.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {

// The CPU; or, with PAWL_TEST_REMOTE_MEMORY, the CPU with separate memory, which a trainer treats
// like a GPU. Both give the same bits.
inline std::unique_ptr<Device> TrainerDevice() {
#ifdef PAWL_TEST_REMOTE_MEMORY
  return std::make_unique<RemoteMemoryDevice>(RemoteMemoryDevice::Reads::kLate);
#else
  return std::make_unique<CpuDevice>();
#endif
}

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_TESTING_TRAINER_DEVICE_H_
