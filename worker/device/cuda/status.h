// Converts CUDA errors to statuses, and waits for a GPU with a limit.
#ifndef PAWL_WORKER_DEVICE_CUDA_STATUS_H_
#define PAWL_WORKER_DEVICE_CUDA_STATUS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "cublas_v2.h"
#include "cuda_runtime_api.h"

namespace pawl {

// Messages start with `what`: the GPU and the operation. RESOURCE_EXHAUSTED without memory,
// UNAVAILABLE without a working GPU, INTERNAL for other errors.
absl::Status StatusOf(cudaError_t error, absl::string_view what);
absl::Status StatusOf(cublasStatus_t error, absl::string_view what);

// Repeats the query until the result is not cudaErrorNotReady. Messages start with `what`.
// DEADLINE_EXCEEDED after `limit`.
absl::Status Await(const std::function<cudaError_t()>& query, MonotonicDuration limit,
                   absl::string_view what);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_STATUS_H_
