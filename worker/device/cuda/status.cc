#include "worker/device/cuda/status.h"

#include "absl/strings/str_cat.h"

namespace pawl {

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

}  // namespace pawl
