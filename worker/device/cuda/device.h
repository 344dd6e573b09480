// A GPU as a device.
//
// STATE: the kernels and the code around them have run on the emulator (emulator/) and match the
// CPU's operations. Nothing has run on a GPU yet.
#ifndef PAWL_WORKER_DEVICE_CUDA_DEVICE_H_
#define PAWL_WORKER_DEVICE_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "cuda_runtime_api.h"
#include "worker/device/cuda/library.h"
#include "worker/device/device.h"

namespace pawl {

// Limit of a wait for a stream. A step takes milliseconds.
inline constexpr std::chrono::seconds kHangLimit{60};
// The pool retains this much freed memory, so that scratch memory is cheap.
inline constexpr uint64_t kKeptBytes = uint64_t{1} << 30;

// Allocates from a memory pool of the CUDA runtime. Thread-safe.
class CudaDevice final : public Device {
 public:
  struct Options {
    int number = 0;
    CudaMath math = CudaMath::kFloat32;
    MonotonicDuration hang_limit = kHangLimit;
  };

  // UNAVAILABLE without a driver or a working GPU, NOT_FOUND without a GPU of this number,
  // FAILED_PRECONDITION for one that is too old.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(const Options& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  bool SharesHostMemory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;

 private:
  explicit CudaDevice(const Options& options) : options_(options) {}
  absl::Status Initialize();

  const Options options_;
  // Constant after Open.
  int processors_ = 1;
  cudaMemPool_t pool_ = nullptr;
  // The stream in which memory is allocated and freed. Synchronizes itself.
  cudaStream_t stream_ = nullptr;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_DEVICE_H_
