#include "worker/collective/nccl/collective.h"

#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// Between two looks at the GPU.
constexpr std::chrono::microseconds kLookInterval{20};

std::optional<ncclDataType_t> TypeOf(CollectiveType type) {
  switch (type) {
    case CollectiveType::kInt8:
      return ncclInt8;
    case CollectiveType::kUint8:
      return ncclUint8;
    case CollectiveType::kInt32:
      return ncclInt32;
    case CollectiveType::kUint32:
      return ncclUint32;
    case CollectiveType::kInt64:
      return ncclInt64;
    case CollectiveType::kUint64:
      return ncclUint64;
    case CollectiveType::kFloat16:
      return ncclFloat16;
    case CollectiveType::kBfloat16:
      return ncclBfloat16;
    case CollectiveType::kFloat32:
      return ncclFloat32;
    case CollectiveType::kFloat64:
      return ncclFloat64;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> ReductionOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kProduct:
      return ncclProd;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kMax:
      return ncclMax;
  }
  return std::nullopt;
}

absl::Status StatusOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return absl::OkStatus();
    case ncclSystemError:
    case ncclRemoteError:
      return absl::UnavailableError(ncclGetErrorString(result));
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::InvalidArgumentError(ncclGetErrorString(result));
    default:
      return absl::InternalError(ncclGetErrorString(result));
  }
}

absl::Status StatusOf(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(cudaGetErrorString(error));
  return absl::InternalError(cudaGetErrorString(error));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCollective>> NcclCollective::Create(const Options& options) {
  if (options.place >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("place ", options.place, " in a group of ", options.size));
  }
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no GPU: ", cudaGetErrorString(error)));
  }
  if (options.device < 0 || options.device >= devices) {
    return absl::UnavailableError(absl::StrCat("there is no GPU ", options.device, "; there are ", devices));
  }
  std::unique_ptr<NcclCollective> collective(new NcclCollective(options));
  if (options.place == 0) {
    ncclUniqueId id;
    PAWL_RETURN_IF_ERROR(StatusOf(ncclGetUniqueId(&id)));
    collective->introduction_.assign(id.internal, sizeof(id.internal));
  }
  NcclCollective* const it = collective.get();
  collective->thread_ = std::make_unique<OperationThread>(nullptr, [it] { it->interrupted_ = true; });
  return collective;
}

NcclCollective::~NcclCollective() {
  if (thread_ == nullptr) return;
  thread_->Stop();
  // Nothing runs any more.
  if (stream_ == nullptr && communicator_ == nullptr) return;
  static_cast<void>(cudaSetDevice(options_.device));
  EndCommunicator();
  if (element_ != nullptr) static_cast<void>(cudaFree(element_));
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

void NcclCollective::EndCommunicator() {
  if (ncclComm_t ended = std::exchange(communicator_, nullptr); ended != nullptr) static_cast<void>(ncclCommAbort(ended));
}

void NcclCollective::Connect(std::vector<std::string> introductions, MonotonicDuration timeout, Done done) {
  thread_->Add(
      timeout,
      [this, introductions = std::move(introductions)](MonotonicTime deadline) {
        if (introductions.size() != options_.size) {
          return absl::InvalidArgumentError(
              absl::StrCat(introductions.size(), " introductions in a group of ", options_.size, " members"));
        }
        const absl::Status status = ConnectAll(introductions[0], deadline);
        if (!status.ok()) EndCommunicator();
        return status;
      },
      std::move(done));
}

absl::Status NcclCollective::ConnectAll(const std::string& id_bytes, MonotonicTime deadline) {
  ncclUniqueId id;
  if (id_bytes.size() != sizeof(id.internal)) return absl::InvalidArgumentError("the introduction is no id of NCCL's");
  std::memcpy(id.internal, id_bytes.data(), sizeof(id.internal));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaSetDevice(options_.device)));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaMalloc(&element_, sizeof(int64_t))));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaMemsetAsync(element_, 0, sizeof(int64_t), stream_)));
  // Its calls return at once, and none waits for a peer: it is asked how it stands.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  PAWL_RETURN_IF_ERROR(StatusOf(ncclCommInitRankConfig(&communicator_, static_cast<int>(options_.size), id,
                                                       static_cast<int>(options_.place), &config)));
  return AwaitCommunicator(deadline);
}

absl::Status NcclCollective::CheckStillWanted(MonotonicTime deadline) const {
  if (interrupted_) return absl::UnavailableError("interrupted");
  if (Clock::Real().Now() >= deadline) return absl::DeadlineExceededError("a member did not come in time");
  return absl::OkStatus();
}

absl::Status NcclCollective::AwaitCommunicator(MonotonicTime deadline) {
  while (true) {
    ncclResult_t state = ncclSuccess;
    PAWL_RETURN_IF_ERROR(StatusOf(ncclCommGetAsyncError(communicator_, &state)));
    if (state == ncclSuccess) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(StatusOf(state));
    PAWL_RETURN_IF_ERROR(CheckStillWanted(deadline));
    std::this_thread::sleep_for(kLookInterval);
  }
}

absl::Status NcclCollective::AwaitStream(MonotonicTime deadline) {
  PAWL_RETURN_IF_ERROR(StatusOf(cudaEventRecord(event_, stream_)));
  while (true) {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaSuccess) return absl::OkStatus();
    if (state != cudaErrorNotReady) return StatusOf(state);
    ncclResult_t error = ncclSuccess;
    PAWL_RETURN_IF_ERROR(StatusOf(ncclCommGetAsyncError(communicator_, &error)));
    PAWL_RETURN_IF_ERROR(StatusOf(error));
    PAWL_RETURN_IF_ERROR(CheckStillWanted(deadline));
    std::this_thread::sleep_for(kLookInterval);
  }
}

void NcclCollective::Add(MonotonicDuration timeout, std::function<absl::Status(MonotonicTime)> enqueue, Done done,
                         absl::Status invalid) {
  thread_->Add(
      timeout,
      [this, enqueue = std::move(enqueue), invalid](MonotonicTime deadline) {
        PAWL_RETURN_IF_ERROR(invalid);
        if (communicator_ == nullptr) return absl::FailedPreconditionError("the members have not been connected");
        absl::Status status = enqueue(deadline);
        if (status.ok()) status = AwaitCommunicator(deadline);
        if (status.ok()) status = AwaitStream(deadline);
        // The memory is the caller's again when it hears of it: nothing may be writing there.
        if (!status.ok()) EndCommunicator();
        return status;
      },
      std::move(done));
}

absl::Status NcclCollective::CheckCall(CollectiveType type, Reduction reduction, size_t root) const {
  if (!TypeOf(type).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no type ", static_cast<int>(type)));
  }
  if (!ReductionOf(reduction).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no reduction ", static_cast<int>(reduction)));
  }
  if (root >= options_.size) {
    return absl::InvalidArgumentError(absl::StrCat("root ", root, " in a group of ", options_.size));
  }
  return absl::OkStatus();
}

void NcclCollective::AllReduce(const void* input, void* output, size_t count, CollectiveType type, Reduction reduction,
                               MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    return StatusOf(ncclAllReduce(input, output, count, *TypeOf(type), *ReductionOf(reduction), communicator_, stream_));
  };
  Add(timeout, enqueue, std::move(done), CheckCall(type, reduction));
}

void NcclCollective::Reduce(const void* input, void* output, size_t count, CollectiveType type, Reduction reduction,
                            size_t root, MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    return StatusOf(ncclReduce(input, output, count, *TypeOf(type), *ReductionOf(reduction), static_cast<int>(root),
                               communicator_, stream_));
  };
  Add(timeout, enqueue, std::move(done), CheckCall(type, reduction, root));
}

void NcclCollective::Broadcast(void* data, size_t count, CollectiveType type, size_t root, MonotonicDuration timeout,
                               Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    return StatusOf(ncclBroadcast(data, data, count, *TypeOf(type), static_cast<int>(root), communicator_, stream_));
  };
  Add(timeout, enqueue, std::move(done), CheckCall(type, Reduction::kSum, root));
}

void NcclCollective::AllGather(const void* input, void* output, size_t count, CollectiveType type, MonotonicDuration timeout,
                               Done done) {
  const auto enqueue = [=, this](MonotonicTime) {
    // NCCL's place for an input that is part of the output is this member's own.
    char* const own = static_cast<char*>(output) + options_.place * count * BytesOf(type);
    const bool moved = input == output && own != output && count > 0;
    if (moved) {
      PAWL_RETURN_IF_ERROR(StatusOf(cudaMemcpyAsync(own, input, count * BytesOf(type), cudaMemcpyDeviceToDevice, stream_)));
    }
    return StatusOf(ncclAllGather(moved ? own : input, output, count, *TypeOf(type), communicator_, stream_));
  };
  Add(timeout, enqueue, std::move(done), CheckCall(type, Reduction::kSum));
}

void NcclCollective::ReduceScatter(const void* input, void* output, size_t count, CollectiveType type, Reduction reduction,
                                   MonotonicDuration timeout, Done done) {
  const auto enqueue = [=, this](MonotonicTime deadline) {
    char* const own = static_cast<char*>(output) + options_.place * count * BytesOf(type);
    const bool moved = input == output && own != output && count > 0;
    PAWL_RETURN_IF_ERROR(StatusOf(ncclReduceScatter(input, moved ? own : output, count, *TypeOf(type),
                                                    *ReductionOf(reduction), communicator_, stream_)));
    if (!moved) return absl::OkStatus();
    // Only what the communicator has put on the stream is before the copy.
    PAWL_RETURN_IF_ERROR(AwaitCommunicator(deadline));
    return StatusOf(cudaMemcpyAsync(output, own, count * BytesOf(type), cudaMemcpyDeviceToDevice, stream_));
  };
  Add(timeout, enqueue, std::move(done), CheckCall(type, reduction));
}

void NcclCollective::Barrier(MonotonicDuration timeout, Done done) {
  const auto enqueue = [this](MonotonicTime) {
    return StatusOf(ncclAllReduce(element_, element_, 1, ncclInt64, ncclSum, communicator_, stream_));
  };
  Add(timeout, enqueue, std::move(done));
}

}  // namespace pawl
