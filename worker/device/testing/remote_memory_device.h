// For tests: the CPU as a device that is as different from the host as possible, which tests data
// movement without a GPU.
#ifndef PAWL_WORKER_DEVICE_TESTING_REMOTE_MEMORY_DEVICE_H_
#define PAWL_WORKER_DEVICE_TESTING_REMOTE_MEMORY_DEVICE_H_

#include <cstddef>
#include <map>
#include <memory>

#include "client_lib/base/mutex.h"
#include "worker/device/cpu/device.h"
#include "worker/device/device.h"

namespace pawl {

// The host can neither read nor write memory at the device's addresses: an attempt crashes. So does
// passing host memory as device memory or vice versa, use after free or beyond the end, and a leak.
// Allocations are filled with NaN.
//
// A stream does nothing before Await or Synchronize is called on it or on a stream that waits for
// it, and then only what must be done by then. It keeps no order that was not requested. The bits
// are the CPU's. Thread-safe.
class RemoteMemoryDevice final : public Device {
 public:
  // When CopyToDevice reads the host's memory. Both are allowed, and each reveals other mistakes.
  enum class Reads { kInTheCall, kLate };

  explicit RemoteMemoryDevice(Reads reads) : reads_(reads) {}
  ~RemoteMemoryDevice() override;

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  bool SharesHostMemory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;

  Reads reads() const { return reads_; }
  // For streams: the memory behind a device range within one allocation.
  template <typename T>
  T* Real(T* address, size_t bytes) {
    return static_cast<T*>(Behind(address, bytes));
  }
  // For streams: checks that the range is host memory.
  template <typename T>
  T* Host(T* address, size_t bytes) {
    CheckIsHostMemory(address, bytes);
    return address;
  }

 private:
  void* Behind(const void* address, size_t bytes);
  void CheckIsHostMemory(const void* address, size_t bytes);

  struct Memory {
    size_t reserved;
    size_t bytes;
    void* behind;
  };

  const Reads reads_;
  CpuDevice cpu_;
  Mutex mu_;
  std::map<const char*, Memory> memories_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_TESTING_REMOTE_MEMORY_DEVICE_H_
