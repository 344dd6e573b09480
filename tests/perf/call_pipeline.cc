#include "tests/perf/call_pipeline.h"

#include <utility>

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {
namespace {

// A call that has not ended by then never will.
constexpr std::chrono::seconds kLastCallTimeout{120};

// The slots whose call has ended, and the first error.
class Ended {
 public:
  void Put(uint32_t slot, absl::Status status) {
    MutexLock lock(mu_);
    slots_.push_back(slot);
    if (status_.ok()) status_ = std::move(status);
    changed_.NotifyOne();
  }
  // Waits for the next slot.
  absl::StatusOr<uint32_t> Take() {
    const MonotonicTime deadline = Clock::Real().Now() + kLastCallTimeout;
    MutexLock lock(mu_);
    while (slots_.empty()) {
      if (!changed_.WaitUntil(mu_, deadline))
        return absl::DeadlineExceededError("a call does not end");
    }
    const uint32_t slot = slots_.back();
    slots_.pop_back();
    return slot;
  }
  absl::Status status() {
    MutexLock lock(mu_);
    return status_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<uint32_t> slots_ PAWL_GUARDED_BY(mu_);
  absl::Status status_ PAWL_GUARDED_BY(mu_);
};

template <typename Wanted, typename Start, typename Finished>
absl::Status Run(uint32_t slots, Wanted more_wanted, Start start, Finished finished) {
  const auto ended = std::make_shared<Ended>();
  uint32_t in_progress = 0;
  const auto begin = [&](uint32_t slot) {
    ++in_progress;
    start(slot, [ended, slot](absl::Status status) { ended->Put(slot, std::move(status)); });
  };
  for (uint32_t slot = 0; slot < slots && more_wanted(); ++slot) begin(slot);
  while (in_progress > 0) {
    const absl::StatusOr<uint32_t> slot = ended->Take();
    if (!slot.ok()) return slot.status();
    --in_progress;
    finished();
    if (more_wanted() && ended->status().ok()) begin(*slot);
  }
  return ended->status();
}

}  // namespace

absl::StatusOr<PipelineResult> RunPipeline(uint32_t slots, double seconds, const StartCall& start) {
  const Clock& clock = Clock::Real();
  const MonotonicTime begin = clock.Now();
  PipelineResult result;
  absl::Status status = Run(
      slots, [&] { return Seconds(clock.Now() - begin) < 1.1 * seconds; }, start,
      [&] {
        const double now = Seconds(clock.Now() - begin);
        if (now > 0.1 * seconds && now <= 1.1 * seconds) {
          ++result.calls;
          result.seconds = now - 0.1 * seconds;
        }
      });
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<PipelineResult> RunCalls(
    uint32_t slots, uint64_t calls,
    const std::function<void(uint32_t slot, uint64_t call, Callback done)>& start) {
  const Clock& clock = Clock::Real();
  const MonotonicTime begin = clock.Now();
  PipelineResult result;
  uint64_t next = 0;
  absl::Status status = Run(
      slots, [&] { return next < calls; },
      [&](uint32_t slot, Callback done) { start(slot, next++, std::move(done)); },
      [&] { ++result.calls; });
  result.seconds = Seconds(clock.Now() - begin);
  if (!status.ok()) return status;
  return result;
}

}  // namespace pawl
