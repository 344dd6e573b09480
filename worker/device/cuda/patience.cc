#include "worker/device/cuda/patience.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/status.h"

namespace pawl {
namespace {

// Number of consecutive queries, some microseconds each, before the thread sleeps between them: the
// work of a small model is done by then.
constexpr int kEagerQueries = 200;
constexpr std::chrono::microseconds kLookInterval{20};

}  // namespace

absl::Status Await(const std::function<cudaError_t()>& query, MonotonicDuration limit,
                   absl::string_view what) {
  const MonotonicTime deadline = Clock::Real().Now() + limit;
  for (int looks = 0;; ++looks) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return StatusOf(error, what);
    // Clear this thread's last error, which the next kernel launch would take for its own.
    static_cast<void>(cudaGetLastError());
    if (looks < kEagerQueries) continue;
    if (Clock::Real().Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": not done after ", Seconds(limit), " s: the GPU hangs"));
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace pawl
