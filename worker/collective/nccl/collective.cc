#include "worker/collective/nccl/collective.h"

#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

std::optional<ncclDataType_t> TypeOf(CollectiveType type) {
  switch (type) {
    case CollectiveType::kInt64:
      return ncclInt64;
    case CollectiveType::kFloat32:
      return ncclFloat32;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> ReductionOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kMin:
      return ncclMin;
  }
  return std::nullopt;
}

// Paces polling of the GPU: short intervals at first, longer ones later, because the slowest member
// may take long.
class PollPacer {
 public:
  void Wait() {
    const bool is_long = ++polls_ > kShortPolls;
    std::this_thread::sleep_for(is_long ? kLongInterval : kShortInterval);
  }

 private:
  static constexpr std::chrono::microseconds kShortInterval{20};
  static constexpr std::chrono::microseconds kLongInterval{200};
  static constexpr int kShortPolls = 100;

  int polls_ = 0;
};

}  // namespace

absl::Status NcclCollective::StatusOf(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* const details = ncclGetLastError(nullptr);
  const std::string message = absl::StrCat(
      "NCCL, GPU ", options_.device, ", ", phase_, ": ", ncclGetErrorString(result),
      details != nullptr && *details != '\0' ? absl::StrCat("; ", details) : std::string());
  switch (result) {
    case ncclSystemError:
    case ncclRemoteError:
      return absl::UnavailableError(message);
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status NcclCollective::StatusOf(cudaError_t error) const {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat("NCCL, GPU ", options_.device, ", ", phase_, ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

absl::StatusOr<std::unique_ptr<NcclCollective>> NcclCollective::Create(const Options& options) {
  if (options.place >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("place ", options.place, " in a group of ", options.size));
  }
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no GPU available: ", cudaGetErrorString(error)));
  }
  if (options.device < 0 || options.device >= devices) {
    return absl::UnavailableError(
        absl::StrCat("GPU ", options.device, " does not exist; the number of GPUs is ", devices));
  }
  std::unique_ptr<NcclCollective> collective(new NcclCollective(options));
  if (options.place == 0) {
    ncclUniqueId id;
    collective->phase_ = "making an id";
    PAWL_RETURN_IF_ERROR(collective->StatusOf(ncclGetUniqueId(&id)));
    collective->introduction_.assign(id.internal, sizeof(id.internal));
  }
  NcclCollective* const it = collective.get();
  collective->thread_ =
      std::make_unique<OperationThread>(nullptr, [it] { it->interrupted_ = true; });
  return collective;
}

NcclCollective::~NcclCollective() {
  if (thread_ == nullptr) return;
  thread_->Stop();
  // Nothing runs any more.
  if (stream_ == nullptr && communicator_ == nullptr) return;
  // Stays set for the thread: a process uses one GPU.
  static_cast<void>(cudaSetDevice(options_.device));
  EndCommunicator();
  // Each of these calls would wait for the GPU.
  if (hangs_) return;
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

void NcclCollective::EndCommunicator() {
  ncclComm* const ended = std::exchange(communicator_, nullptr);
  if (ended == nullptr || hangs_) return;
  const MonotonicTime limit = Clock::Real().Now() + kNcclEndLimit;
  // ncclCommAbort waits for the GPU without a limit, so it runs on a detached thread.
  auto aborted = std::make_shared<std::promise<void>>();
  std::future<void> end = aborted->get_future();
  std::thread([ended, aborted, device = options_.device] {
    static_cast<void>(cudaSetDevice(device));
    static_cast<void>(ncclCommAbort(ended));
    aborted->set_value();
  }).detach();
  if (end.wait_until(limit) != std::future_status::ready) {
    hangs_ = true;
    return;
  }
  // NCCL has waited for its own kernels but not for copies behind them.
  for (PollPacer pacer; stream_ != nullptr && cudaStreamQuery(stream_) == cudaErrorNotReady;
       pacer.Wait()) {
    if (Clock::Real().Now() < limit) continue;
    hangs_ = true;
    return;
  }
}

void NcclCollective::Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
                             Done done) {
  thread_->Add(
      timeout,
      [this, introductions = std::move(introductions)](MonotonicTime deadline) {
        if (introductions.size() != options_.size) {
          return absl::InvalidArgumentError(absl::StrCat(
              introductions.size(), " introductions in a group of ", options_.size, " members"));
        }
        phase_ = "connecting";
        absl::Status status = ConnectAll(introductions[0], deadline);
        if (status.ok()) return status;
        EndCommunicator();
        return hangs_ ? Annotate(status, "the GPU hangs") : status;
      },
      std::move(done));
}

absl::Status NcclCollective::ConnectAll(const std::string& id_bytes, MonotonicTime deadline) {
  ncclUniqueId id;
  if (id_bytes.size() != sizeof(id.internal))
    return absl::InvalidArgumentError("the introduction is not an NCCL id");
  std::memcpy(id.internal, id_bytes.data(), sizeof(id.internal));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaSetDevice(options_.device)));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)));
  // Non-blocking: calls return at once, and the communicator is polled for its state.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  PAWL_RETURN_IF_ERROR(
      StatusOf(ncclCommInitRankConfig(&communicator_, static_cast<int>(options_.size), id,
                                      static_cast<int>(options_.place), &config)));
  return AwaitCommunicator(deadline);
}

absl::Status NcclCollective::CheckNotInterrupted(MonotonicTime deadline) const {
  if (interrupted_) return absl::UnavailableError("interrupted");
  if (Clock::Real().Now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("NCCL, GPU ", options_.device, ", ", phase_, ": it did not end in time"));
}

absl::Status NcclCollective::AwaitCommunicator(MonotonicTime deadline) {
  for (PollPacer pacer;; pacer.Wait()) {
    ncclResult_t state = ncclSuccess;
    PAWL_RETURN_IF_ERROR(StatusOf(ncclCommGetAsyncError(communicator_, &state)));
    if (state == ncclSuccess) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(StatusOf(state));
    PAWL_RETURN_IF_ERROR(CheckNotInterrupted(deadline));
  }
}

absl::Status NcclCollective::AwaitStream(MonotonicTime deadline) {
  PAWL_RETURN_IF_ERROR(StatusOf(cudaEventRecord(event_, stream_)));
  for (PollPacer pacer;; pacer.Wait()) {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaSuccess) return absl::OkStatus();
    if (state != cudaErrorNotReady) return StatusOf(state);
    ncclResult_t error = ncclSuccess;
    PAWL_RETURN_IF_ERROR(StatusOf(ncclCommGetAsyncError(communicator_, &error)));
    PAWL_RETURN_IF_ERROR(StatusOf(error));
    PAWL_RETURN_IF_ERROR(CheckNotInterrupted(deadline));
  }
}

void NcclCollective::Add(const char* name, MonotonicDuration timeout,
                         std::function<absl::Status(MonotonicTime)> enqueue, Done done,
                         absl::Status invalid) {
  thread_->Add(
      timeout,
      [this, name, enqueue = std::move(enqueue), invalid](MonotonicTime deadline) {
        PAWL_RETURN_IF_ERROR(invalid);
        phase_ = name;
        if (communicator_ == nullptr)
          return absl::FailedPreconditionError("the members are not connected");
        absl::Status status = enqueue(deadline);
        if (status.ok()) status = AwaitCommunicator(deadline);
        if (status.ok()) status = AwaitStream(deadline);
        // `done` returns the memory to the caller, so nothing may still write to it.
        if (status.ok()) return status;
        EndCommunicator();
        return hangs_ ? Annotate(status, "the GPU hangs") : status;
      },
      std::move(done));
}

absl::Status NcclCollective::CheckCall(CollectiveType type, Reduction reduction,
                                       size_t root) const {
  if (!TypeOf(type).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown type ", static_cast<int>(type)));
  }
  if (!ReductionOf(reduction).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown reduction ", static_cast<int>(reduction)));
  }
  if (root >= options_.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", root, " in a group of ", options_.size));
  }
  return absl::OkStatus();
}

void NcclCollective::AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                               Reduction reduction, MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    return StatusOf(ncclAllReduce(input, output, count, *TypeOf(type), *ReductionOf(reduction),
                                  communicator_, stream_));
  };
  Add("all-reduce", timeout, enqueue, std::move(done), CheckCall(type, reduction));
}

void NcclCollective::Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                               MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    return StatusOf(ncclBroadcast(data, data, count, *TypeOf(type), static_cast<int>(root),
                                  communicator_, stream_));
  };
  Add("broadcast", timeout, enqueue, std::move(done), CheckCall(type, Reduction::kSum, root));
}

void NcclCollective::AllGather(const void* input, void* output, size_t count, CollectiveType type,
                               MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    // NCCL expects an in-place input at this member's own position.
    char* const own = static_cast<char*>(output) + options_.place * count * BytesOf(type);
    const bool moved = input == output && own != output && count > 0;
    if (moved) {
      PAWL_RETURN_IF_ERROR(StatusOf(
          cudaMemcpyAsync(own, input, count * BytesOf(type), cudaMemcpyDeviceToDevice, stream_)));
    }
    return StatusOf(
        ncclAllGather(moved ? own : input, output, count, *TypeOf(type), communicator_, stream_));
  };
  Add("all-gather", timeout, enqueue, std::move(done), CheckCall(type, Reduction::kSum));
}

void NcclCollective::ReduceScatter(const void* input, void* output, size_t count,
                                   CollectiveType type, Reduction reduction,
                                   MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime deadline) {
    char* const own = static_cast<char*>(output) + options_.place * count * BytesOf(type);
    const bool moved = input == output && own != output && count > 0;
    PAWL_RETURN_IF_ERROR(
        StatusOf(ncclReduceScatter(input, moved ? own : output, count, *TypeOf(type),
                                   *ReductionOf(reduction), communicator_, stream_)));
    if (!moved) return absl::OkStatus();
    // The copy follows only what the communicator has already put on the stream.
    PAWL_RETURN_IF_ERROR(AwaitCommunicator(deadline));
    return StatusOf(
        cudaMemcpyAsync(output, own, count * BytesOf(type), cudaMemcpyDeviceToDevice, stream_));
  };
  Add("reduce-scatter", timeout, enqueue, std::move(done), CheckCall(type, reduction));
}

}  // namespace pawl
