// Keeps a fixed number of asynchronous calls under way, as a pipelining client does.
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

// Starts call number `slot` of those under way; runs `done` at its end.
using StartCall = std::function<void(uint32_t slot, Callback done)>;

// Makes calls in `slots` slots, each as soon as the one before in its slot has ended, until
// `seconds` have passed, and waits for the last ones. Counted are the calls that ended within that
// time, after a warm-up of a tenth of it. The first error ends it.
absl::StatusOr<PipelineResult> RunPipeline(uint32_t slots, double seconds, const StartCall& start);

// The same for a fixed number of calls: start(slot, call, done) for calls 0 to `calls` - 1.
absl::StatusOr<PipelineResult> RunCalls(
    uint32_t slots, uint64_t calls,
    const std::function<void(uint32_t slot, uint64_t call, Callback done)>& start);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_CALL_PIPELINE_H_
