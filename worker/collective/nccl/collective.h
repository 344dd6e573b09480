// The collective of processes on GPUs: NCCL.
//
// STATE: compiled and linked against NCCL 2.28 and CUDA 13, and run only as far as that goes on a
// machine without a GPU (making one there is refused). No operation of it has ever run.
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

// How long the end of a communicator may take.
inline constexpr std::chrono::seconds kNcclEndLimit{60};

// Memory is that of one GPU, and what lies in it when an operation is called is what it takes: work
// that writes it must have ended. All types and reductions that there are. Only the member at place
// 0 has something to introduce, NCCL's id.
//
// Operations run on a stream of the collective's own. Its thread asks the communicator and the
// stream how they stand until they are done, the deadline has passed or it is aborted; it then ends
// the communicator (ncclCommAbort), which also ends kernels that wait for peers. Each operation
// that fails breaks the group. In which order NCCL adds is NCCL's to say: it depends on the members
// and how they are connected.
//
// ncclCommAbort waits for the GPU. One that does not come to an end within kNcclEndLimit is left
// alone with all that it may use: hangs() says so, the operations end with an error, and neither
// the communicator nor the stream is freed.
//
// Errors of NCCL's are never INVALID_ARGUMENT: what it calls an invalid usage is here a matter of
// the machines (another version of NCCL, one GPU twice, no network), FAILED_PRECONDITION.
class NcclCollective final : public ConnectableCollective {
 public:
  struct Options {
    size_t size = 1;
    size_t place = 0;
    // Which of this machine's GPUs. Each member needs one of its own.
    int device = 0;
  };
  // INVALID_ARGUMENT for a place that there is not, UNAVAILABLE without such a GPU.
  static absl::StatusOr<std::unique_ptr<NcclCollective>> Create(const Options& options);
  ~NcclCollective() override;

  const std::string& introduction() const override { return introduction_; }
  void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
               Done done) override;

  size_t size() const override { return options_.size; }
  size_t place() const override { return options_.place; }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Reduce(const void* input, void* output, size_t count, CollectiveType type,
              Reduction reduction, size_t root, MonotonicDuration timeout, Done done) override;
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override;
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override;
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Barrier(MonotonicDuration timeout, Done done) override;
  void Abort(const absl::Status& reason) override { thread_->Abort(reason); }
  absl::Status status() const override { return thread_->status(); }
  bool hangs() const override { return hangs_; }

 private:
  explicit NcclCollective(const Options& options) : options_(options) {}

  // With the GPU and what is being done there.
  absl::Status StatusOf(ncclResult_t result) const;
  absl::Status StatusOf(cudaError_t error) const;

  // All of these on thread_.
  absl::Status ConnectAll(const std::string& id, MonotonicTime deadline);
  // Until the communicator has taken what it was given.
  absl::Status AwaitCommunicator(MonotonicTime deadline);
  // Until the stream has done it.
  absl::Status AwaitStream(MonotonicTime deadline);
  absl::Status CheckStillWanted(MonotonicTime deadline) const;
  // Whatever comes of it, nothing that was put on the stream runs on, or hangs() is true.
  void EndCommunicator();

  // `name` is a message's word for it; `enqueue` puts it on the stream.
  void Add(const char* name, MonotonicDuration timeout,
           std::function<absl::Status(MonotonicTime deadline)> enqueue, Done done,
           absl::Status invalid = absl::OkStatus());
  absl::Status CheckCall(CollectiveType type, Reduction reduction, size_t root = 0) const;

  const Options options_;
  std::string introduction_;
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> hangs_{false};
  // For thread_ alone.
  const char* doing_ = "nothing";
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  // One element for barriers.
  void* element_ = nullptr;
  std::unique_ptr<OperationThread> thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_NCCL_COLLECTIVE_H_
