// The memory in which a process keeps the dense parameters that it trains.
#ifndef PAWL_WORKER_DENSE_DENSE_MEMORY_H_
#define PAWL_WORKER_DENSE_DENSE_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/mutex.h"
#include "proto/job.pb.h"
#include "worker/device/device.h"

namespace pawl {

// Whether the dense parameters, their slots and their gradients stay in the device's own memory:
// with dense_path: ALLREDUCE, unless the host adds up micro-batches or updates shares.
bool DenseStaysOnDevice(const Job& job, const Device& device);

// Memory of a device, with streams on it. The device is a GPU, or the host's processor, whose
// streams do their work within the call. An allocation is freed with its last owner, except after
// Leak or after a stream has hung, because the device may still use it. Outlives its allocations.
// Thread-safe, except stream() and Finish.
class DenseMemory {
 public:
  // `device` outlives it.
  static absl::StatusOr<std::unique_ptr<DenseMemory>> Create(Device& device);
  // On the host's processor.
  static std::unique_ptr<DenseMemory> CreateOnHost();

  ~DenseMemory();

  // Returns `count` zeros. RESOURCE_EXHAUSTED if the device lacks the memory.
  absl::StatusOr<std::shared_ptr<float>> Allocate(size_t count);
  // Whether this is host memory, which the host may read and write.
  bool IsHostMemory() const { return device_.SharesHostMemory(); }

  // Copies between this memory and the host's; complete on return. Does not wait for the work on
  // stream().
  absl::Status ToHost(const float* from, size_t count, float* host) {
    return Copy(from, count, host, /*to_host=*/true);
  }
  absl::Status FromHost(const float* host, size_t count, float* to) {
    return Copy(host, count, to, /*to_host=*/false);
  }

  // Used by the one thread that writes the parameters: it enqueues work on the stream, and Finish
  // waits until that is done.
  Stream& stream() { return *stream_; }
  absl::Status Finish() { return Record(stream_->Synchronize()); }

  // Something other than these streams may use the memory forever: it is neither freed nor reused.
  void Leak(std::shared_ptr<float> floats);
  // The first error of a stream, including the copy stream. The device is unusable, or it lacked
  // the working memory of an operation.
  absl::Status status() const;

 private:
  DenseMemory(Device& device, std::unique_ptr<Device> own)
      : own_(std::move(own)), device_(device) {}
  absl::Status CreateStreams();
  absl::Status Copy(const float* from, size_t count, float* to, bool to_host);
  absl::Status Record(const absl::Status& status);
  void Abandon() { is_abandoned_ = true; }

  // The host's processor, if no other device was given.
  const std::unique_ptr<Device> own_;
  Device& device_;
  std::atomic<bool> is_abandoned_{false};
  std::unique_ptr<Stream> stream_;

  mutable Mutex mu_;
  std::unique_ptr<Stream> copy_stream_ PAWL_GUARDED_BY(mu_);
  absl::Status status_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<float>> leaked_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_MEMORY_H_
