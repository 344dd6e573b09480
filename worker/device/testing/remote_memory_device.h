// For tests: the CPU as a device as different from the host as can be, so that what moves between
// the two is tested where there is no GPU.
#ifndef PAWL_WORKER_DEVICE_TESTING_REMOTE_MEMORY_DEVICE_H_
#define PAWL_WORKER_DEVICE_TESTING_REMOTE_MEMORY_DEVICE_H_

#include <cstddef>
#include <map>
#include <memory>

#include "client_lib/base/mutex.h"
#include "worker/device/cpu/device.h"
#include "worker/device/device.h"

namespace pawl {

// Its addresses are of memory that the host can neither read nor write: whoever tries crashes. So
// does who gives the host's memory where the device's is wanted or the other way round, uses memory
// after it was freed or beyond its end, or does not free it. What was allocated is full of NaN.
//
// A stream does nothing before Await or Synchronize is called, of itself or of one that waits for
// it; and then only what must have been done by then. An order that is nowhere asked for is not
// kept. The bits are the CPU's. Thread-safe.
class RemoteMemoryDevice final : public Device {
 public:
  // When CopyToDevice reads the host's memory: both are allowed, and each finds another mistake.
  enum class Reads { kInTheCall, kLate };

  explicit RemoteMemoryDevice(Reads reads) : reads_(reads) {}
  ~RemoteMemoryDevice() override;

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  bool SharesHostMemory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;

  Reads reads() const { return reads_; }
  // For streams. The memory behind a device address, all of it in one allocation.
  template <typename T>
  T* Real(T* address, size_t bytes) {
    return static_cast<T*>(Behind(address, bytes));
  }
  // For streams. Host memory.
  template <typename T>
  T* OfHost(T* address, size_t bytes) {
    CheckIsOfHost(address, bytes);
    return address;
  }

 private:
  void* Behind(const void* address, size_t bytes);
  void CheckIsOfHost(const void* address, size_t bytes);

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
