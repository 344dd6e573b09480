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

// Whether the dense parameters, their slots and their gradients stay in the memory of the device,
// which then is not the host's: with dense_path: ALLREDUCE, but not where the host adds up
// micro-batches, or makes the updates of shares.
bool DenseStaysOnDevice(const Job& job, const Device& device);

// Memory of a device, and streams on it: of the host's processor, so that it is the host's memory
// and a stream's work is done in the call, or of a GPU. What is allocated is freed with its last
// holder, but what is lost never, and nothing after a stream has hung: the device may still use it.
// Outlives what was allocated. Thread-safe, but for stream() and Finish.
class DenseMemory {
 public:
  // `device` outlives it.
  static absl::StatusOr<std::unique_ptr<DenseMemory>> Create(Device& device);
  // The host's.
  static std::unique_ptr<DenseMemory> OfHost();

  ~DenseMemory();

  // So many zeros. RESOURCE_EXHAUSTED if the device has not as much memory.
  absl::StatusOr<std::shared_ptr<float>> Allocate(size_t count);
  // Whether the host may read and write it.
  bool IsOfHost() const { return device_.SharesHostMemory(); }

  // Copies between this memory and the host's; done at the return. What the stream below has not
  // finished is not awaited.
  absl::Status ToHost(const float* from, size_t count, float* host) {
    return Copy(from, count, host, /*to_host=*/true);
  }
  absl::Status FromHost(const float* host, size_t count, float* to) {
    return Copy(host, count, to, /*to_host=*/false);
  }

  // For one thread, the one that writes the parameters: work is given to the stream, and Finish
  // waits until it is done.
  Stream& stream() { return *stream_; }
  absl::Status Finish() { return Keep(stream_->Synchronize()); }

  // Something else than the streams here may use it for ever. It is not freed, and nobody is given
  // it again.
  void Lose(std::shared_ptr<float> floats);
  // The first error of a stream, also of the one that copies for any thread: the device cannot be
  // used any more, or had no memory for what an operation needs besides.
  absl::Status status() const;

 private:
  DenseMemory(Device& device, std::unique_ptr<Device> own)
      : own_(std::move(own)), device_(device) {}
  absl::Status CreateStreams();
  absl::Status Copy(const float* from, size_t count, float* to, bool to_host);
  absl::Status Keep(const absl::Status& status);
  void Abandon() { is_abandoned_ = true; }

  // The host's processor, where no other device was given.
  const std::unique_ptr<Device> own_;
  Device& device_;
  std::atomic<bool> is_abandoned_{false};
  std::unique_ptr<Stream> stream_;

  mutable Mutex mu_;
  std::unique_ptr<Stream> copies_ PAWL_GUARDED_BY(mu_);
  absl::Status status_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<float>> lost_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_MEMORY_H_
