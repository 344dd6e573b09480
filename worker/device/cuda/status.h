// CUDA's errors as statuses.
#ifndef PAWL_WORKER_DEVICE_CUDA_STATUS_H_
#define PAWL_WORKER_DEVICE_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cublas_v2.h"
#include "cuda_runtime_api.h"

namespace pawl {

// `what` begins the message: the GPU and what was tried. RESOURCE_EXHAUSTED without memory,
// UNAVAILABLE without a GPU that works, INTERNAL for the rest.
absl::Status StatusOf(cudaError_t error, absl::string_view what);
absl::Status StatusOf(cublasStatus_t error, absl::string_view what);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_STATUS_H_
