// Converts CUDA errors to statuses.
#ifndef PAWL_WORKER_DEVICE_CUDA_STATUS_H_
#define PAWL_WORKER_DEVICE_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cublas_v2.h"
#include "cuda_runtime_api.h"

namespace pawl {

// Messages start with `what`: the GPU and the operation. RESOURCE_EXHAUSTED without memory,
// UNAVAILABLE without a working GPU, INTERNAL for other errors.
absl::Status StatusOf(cudaError_t error, absl::string_view what);
absl::Status StatusOf(cublasStatus_t error, absl::string_view what);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_STATUS_H_
