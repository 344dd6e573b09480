// The host's own processor as a device.
#ifndef PAWL_WORKER_DEVICE_CPU_DEVICE_H_
#define PAWL_WORKER_DEVICE_CPU_DEVICE_H_

#include <memory>

#include "worker/device/cpu/gemm/gemm.h"
#include "worker/device/device.h"

namespace pawl {

// Its streams run in the calling thread; for parallelism each logical worker has a stream. Makes
// OpenBLAS single-threaded in the whole process. Thread-safe.
class CpuDevice final : public Device {
 public:
  // Streams multiply matrices with the best kernel of this processor, or with `kernel`. REQUIRES:
  // the processor has it.
  CpuDevice();
  explicit CpuDevice(GemmKernel kernel);

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  bool SharesHostMemory() const override { return true; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;

 private:
  const GemmKernel kernel_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_DEVICE_H_
