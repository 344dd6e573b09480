// For tests: a collective for the memory of a RemoteMemoryDevice.
#ifndef PAWL_WORKER_COLLECTIVE_TESTING_REMOTE_MEMORY_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_TESTING_REMOTE_MEMORY_COLLECTIVE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/collective/connectable_collective.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {

// Applies `inner`, which takes host memory, to the memory behind the device's addresses. The device
// crashes on host addresses.
class RemoteMemoryCollective final : public ConnectableCollective {
 public:
  // `device` outlives it.
  RemoteMemoryCollective(std::unique_ptr<ConnectableCollective> inner, RemoteMemoryDevice& device)
      : inner_(std::move(inner)), device_(device) {}

  const std::string& introduction() const override { return inner_->introduction(); }
  void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
               Done done) override {
    inner_->Connect(std::move(introductions), timeout, std::move(done));
  }

  size_t size() const override { return inner_->size(); }
  size_t place() const override { return inner_->place(); }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration timeout, Done done) override {
    const size_t bytes = count * BytesOf(type);
    inner_->AllReduce(Real(input, bytes), Real(output, bytes), count, type, reduction, timeout,
                      std::move(done));
  }
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override {
    inner_->Broadcast(Real(data, count * BytesOf(type)), count, type, root, timeout,
                      std::move(done));
  }
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override {
    const size_t bytes = count * BytesOf(type);
    inner_->AllGather(Real(input, bytes), Real(output, size() * bytes), count, type, timeout,
                      std::move(done));
  }
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override {
    const size_t bytes = count * BytesOf(type);
    inner_->ReduceScatter(Real(input, size() * bytes), Real(output, bytes), count, type, reduction,
                          timeout, std::move(done));
  }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }
  absl::Status status() const override { return inner_->status(); }

 private:
  const void* Real(const void* address, size_t bytes) {
    return device_.Real(static_cast<const char*>(address), bytes);
  }
  void* Real(void* address, size_t bytes) {
    return device_.Real(static_cast<char*>(address), bytes);
  }

  const std::unique_ptr<ConnectableCollective> inner_;
  RemoteMemoryDevice& device_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_TESTING_REMOTE_MEMORY_COLLECTIVE_H_
