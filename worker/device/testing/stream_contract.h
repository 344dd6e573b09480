// The contract of every device's operations, as tests. A device's own test says how to open it:
//
//   INSTANTIATE_TEST_SUITE_P(
//       Cpu, StreamContractTest,
//       ::testing::Values(DeviceOpener([] { return std::make_unique<CpuDevice>(); })));
#ifndef PAWL_WORKER_DEVICE_TESTING_STREAM_CONTRACT_H_
#define PAWL_WORKER_DEVICE_TESTING_STREAM_CONTRACT_H_

#include <functional>
#include <memory>
#include <random>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "worker/device/device.h"
#include "worker/device/testing/host_stream.h"

namespace pawl {

// The tests are skipped if the device is missing: UNAVAILABLE, UNIMPLEMENTED.
using DeviceOpener = std::function<absl::StatusOr<std::unique_ptr<Device>>()>;

class StreamContractTest : public ::testing::TestWithParam<DeviceOpener> {
 protected:
  void SetUp() override;
  void TearDown() override;

  float Random() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  size_t RandomBelow(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<HostStream> stream_;
  std::mt19937 random_{20240607};
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_TESTING_STREAM_CONTRACT_H_
