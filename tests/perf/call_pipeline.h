// Keeps a fixed number of asynchronous calls in flight, as a pipelining client does.
#ifndef PAWL_TESTS_PERF_CALL_PIPELINE_H_
#define PAWL_TESTS_PERF_CALL_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/client.h"

namespace pawl {

struct PipelineResult {
  uint64_t calls = 0;
  double seconds = 0;
};

// Starts a call in `slot` and runs `done` at its end.
using StartCall = std::function<void(uint32_t slot, Callback done)>;

// Makes calls in `slots` slots for `seconds`, each when its slot's previous call has ended, and
// waits for the last ones. Counts the calls that end within that time after a warm-up of a tenth of
// it. The first error stops it.
absl::StatusOr<PipelineResult> RunPipeline(uint32_t slots, double seconds, const StartCall& start);

// Makes a fixed number of calls: start(slot, call, done) for calls 0 to `calls` - 1.
absl::StatusOr<PipelineResult> RunCalls(
    uint32_t slots, uint64_t calls,
    const std::function<void(uint32_t slot, uint64_t call, Callback done)>& start);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_CALL_PIPELINE_H_
