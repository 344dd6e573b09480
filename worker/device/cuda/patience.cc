#include "worker/device/cuda/patience.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/status.h"

namespace pawl {
namespace {

// Looks one after the other, each some microseconds long, before the thread begins to sleep between
// them: what a GPU does for a small model is over by then.
constexpr int kEagerLooks = 200;
constexpr std::chrono::microseconds kLookInterval{20};

}  // namespace

absl::Status Await(const std::function<cudaError_t()>& query, MonotonicDuration limit,
                   absl::string_view what) {
  const MonotonicTime deadline = Clock::Real().Now() + limit;
  for (int looks = 0;; ++looks) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return StatusOf(error, what);
    // It counts as this thread's last error, which whoever launches a kernel next would take for
    // its own.
    static_cast<void>(cudaGetLastError());
    if (looks < kEagerLooks) continue;
    if (Clock::Real().Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": not done after ", Seconds(limit), " s: the GPU hangs"));
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace pawl
