// Waits for a GPU with a limit.
#ifndef PAWL_WORKER_DEVICE_CUDA_PATIENCE_H_
#define PAWL_WORKER_DEVICE_CUDA_PATIENCE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "cuda_runtime_api.h"

namespace pawl {

// Repeats the query until the result is not cudaErrorNotReady. Messages start with `what`.
// DEADLINE_EXCEEDED after `limit`.
absl::Status Await(const std::function<cudaError_t()>& query, MonotonicDuration limit,
                   absl::string_view what);

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_PATIENCE_H_
