// The host's own processor as a device.
#ifndef PAWL_WORKER_DEVICE_CPU_DEVICE_H_
#define PAWL_WORKER_DEVICE_CPU_DEVICE_H_

#include <memory>

#include "worker/device/device.h"

namespace pawl {

// Its streams run in the calling thread; for parallelism each logical worker has a stream. Makes
// OpenBLAS single-threaded in the whole process. Thread-safe.
class CpuDevice final : public Device {
 public:
  CpuDevice();

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  bool SharesHostMemory() const override { return true; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_DEVICE_H_
