// The collective of processes on GPUs: NCCL.
//
// STATE: compiled and linked against NCCL 2.28 and CUDA 13. Without a GPU, creating one is refused,
// and that is all that has run: no operation has ever run.
#ifndef PAWL_WORKER_COLLECTIVE_NCCL_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_NCCL_COLLECTIVE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime.h"
#include "nccl.h"
#include "worker/collective/connectable_collective.h"
#include "worker/collective/operation_thread.h"

namespace pawl {

// Limit for ending a communicator.
inline constexpr std::chrono::seconds kNcclEndLimit{60};

// Takes the memory of one GPU. Work that writes an operation's input must have ended before the
// call. Only the member at place 0 has an introduction, NCCL's id.
//
// Operations run on a stream of the collective's own. Its thread polls the communicator and the
// stream until they are done, the deadline has passed or the collective is aborted. It then ends
// the communicator (ncclCommAbort), which also ends kernels that wait for peers. Every failed
// operation breaks the group. The order of addition is NCCL's and depends on the members and their
// connections.
//
// ncclCommAbort waits for the GPU. If it does not return within kNcclEndLimit, the communicator,
// the stream and everything that they may use are leaked: hangs() is true, and the operations end
// with an error.
//
// Errors of NCCL are never INVALID_ARGUMENT: what NCCL calls an invalid usage is a property of the
// machines here (another NCCL version, a GPU used twice, no network), so it becomes
// FAILED_PRECONDITION.
class NcclCollective final : public ConnectableCollective {
 public:
  struct Options {
    size_t size = 1;
    size_t place = 0;
    // Number of this machine's GPU. Each member needs one of its own.
    int device = 0;
  };
  // INVALID_ARGUMENT for an invalid place, UNAVAILABLE without such a GPU.
  static absl::StatusOr<std::unique_ptr<NcclCollective>> Create(const Options& options);
  ~NcclCollective() override;

  const std::string& introduction() const override { return introduction_; }
  void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
               Done done) override;

  size_t size() const override { return options_.size; }
  size_t place() const override { return options_.place; }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override;
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override;
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Abort(const absl::Status& reason) override { thread_->Abort(reason); }
  absl::Status status() const override { return thread_->status(); }
  bool hangs() const override { return hangs_; }

 private:
  explicit NcclCollective(const Options& options) : options_(options) {}

  // Name the GPU and the current phase.
  absl::Status StatusOf(ncclResult_t result) const;
  absl::Status StatusOf(cudaError_t error) const;

  // All of these run on thread_.
  absl::Status ConnectAll(const std::string& id, MonotonicTime deadline);
  // Waits until the communicator has accepted its last call.
  absl::Status AwaitCommunicator(MonotonicTime deadline);
  // Waits until the stream has finished.
  absl::Status AwaitStream(MonotonicTime deadline);
  // Fails after the deadline or an abort.
  absl::Status CheckNotInterrupted(MonotonicTime deadline) const;
  // Afterwards nothing from the stream runs, or hangs() is true.
  void EndCommunicator();

  // `name` is the operation's name in messages; `enqueue` puts it on the stream.
  void Add(const char* name, MonotonicDuration timeout,
           std::function<absl::Status(MonotonicTime deadline)> enqueue, Done done,
           absl::Status invalid = absl::OkStatus());
  absl::Status CheckCall(CollectiveType type, Reduction reduction, size_t root = 0) const;

  const Options options_;
  std::string introduction_;
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> hangs_{false};
  // Used by thread_ alone.
  const char* phase_ = "nothing";
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  std::unique_ptr<OperationThread> thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_NCCL_COLLECTIVE_H_
