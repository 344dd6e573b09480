#include "worker/device/cuda/status.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// Number of consecutive queries, some microseconds each, before the thread sleeps between them: the
// work of a small model is done by then.
constexpr int kEagerQueries = 200;
constexpr std::chrono::microseconds kQueryInterval{20};

}  // namespace

absl::Status StatusOf(cudaError_t error, absl::string_view what) {
  switch (error) {
    case cudaSuccess:
      return absl::OkStatus();
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(
          absl::StrCat(what,
                       ": the GPU has no memory left (other processes may be using it); use a "
                       "smaller batch_size or model"));
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorECCUncorrectable:
      return absl::UnavailableError(
          absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
    default:
      return absl::InternalError(
          absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
  }
}

absl::Status StatusOf(cublasStatus_t error, absl::string_view what) {
  switch (error) {
    case CUBLAS_STATUS_SUCCESS:
      return absl::OkStatus();
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::ResourceExhaustedError(absl::StrCat(what, ": cuBLAS cannot allocate memory"));
    default:
      return absl::InternalError(absl::StrCat(what, ": ", cublasGetStatusString(error)));
  }
}

absl::Status Await(const std::function<cudaError_t()>& query, MonotonicDuration limit,
                   absl::string_view what) {
  const MonotonicTime deadline = Clock::Real().Now() + limit;
  for (int queries = 0;; ++queries) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return StatusOf(error, what);
    // Clear this thread's last error, which the next kernel launch would take for its own.
    static_cast<void>(cudaGetLastError());
    if (queries < kEagerQueries) continue;
    if (Clock::Real().Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": not done after ", Seconds(limit), " s: the GPU hangs"));
    }
    std::this_thread::sleep_for(kQueryInterval);
  }
}

}  // namespace pawl
