// The members of collective_test, which is built for several kinds of members.
#ifndef PAWL_WORKER_COLLECTIVE_TESTING_TESTED_MEMBERS_H_
#define PAWL_WORKER_COLLECTIVE_TESTING_TESTED_MEMBERS_H_

#include <chrono>
#include <cstddef>

#include "worker/collective/testing/members_in_threads.h"

#if defined(PAWL_TEST_STAGED)
#include "worker/collective/staged_collective.h"
#include "worker/collective/testing/remote_memory_collective.h"
#include "worker/device/testing/remote_memory_device.h"
#elif defined(PAWL_TEST_STAGED_ON_CUDA)
#include "worker/collective/staged_collective.h"
#include "worker/device/cuda/device.h"
#endif

namespace pawl {

#if defined(PAWL_TEST_STAGED) || defined(PAWL_TEST_STAGED_ON_CUDA)

// Not a multiple of any type's size; larger operations of the test are split into pieces.
inline constexpr size_t kTestedPieceBytes = 100003;

#if defined(PAWL_TEST_STAGED)
// Memory that Gloo can reach only through a translation.
class TestedDevice {
 public:
  Device& device() { return device_; }
  std::unique_ptr<ConnectableCollective> OnDevice(std::unique_ptr<GlooCollective> inner) {
    return std::make_unique<RemoteMemoryCollective>(std::move(inner), device_);
  }

 private:
  RemoteMemoryDevice device_{RemoteMemoryDevice::Reads::kLate};
};
#else
// The emulator's GPU, whose memory Gloo can reach, too early or too late.
class TestedDevice {
 public:
  Device& device() { return *device_; }
  std::unique_ptr<ConnectableCollective> OnDevice(std::unique_ptr<GlooCollective> inner) {
    return inner;
  }

 private:
  const std::unique_ptr<CudaDevice> device_ = *CudaDevice::Open({});
};
#endif

// Members on one device.
class TestedMembers : private TestedDevice, public MembersOf<ConnectableCollective> {
 public:
  explicit TestedMembers(size_t size, bool connect = true,
                         std::chrono::milliseconds pair_timeout = kTestTimeout)
      : MembersOf<ConnectableCollective>(
            [this](const GlooCollective::Options& options)
                -> absl::StatusOr<std::unique_ptr<ConnectableCollective>> {
              auto inner = GlooCollective::Create(options);
              if (!inner.ok()) return inner.status();
              return StagedCollective::Create(OnDevice(*std::move(inner)), device(),
                                              {.piece_bytes = kTestedPieceBytes});
            },
            size, connect, pair_timeout) {}
};

#else

class TestedMembers : public MembersOf<ConnectableCollective> {
 public:
  explicit TestedMembers(size_t size, bool connect = true,
                         std::chrono::milliseconds pair_timeout = kTestTimeout)
      : MembersOf<ConnectableCollective>(GlooCollective::Create, size, connect, pair_timeout) {}
};

#endif

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_TESTING_TESTED_MEMBERS_H_
