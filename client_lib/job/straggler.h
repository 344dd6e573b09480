// The value of pawl-worker's --straggler: injected delays, for experiments with slow workers.
#ifndef PAWL_CLIENT_LIB_JOB_STRAGGLER_H_
#define PAWL_CLIENT_LIB_JOB_STRAGGLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pawl {

// How long a rank waits in each step; see DelayOf (worker/process/straggler_delay.h).
struct Straggler {
  enum class Kind {
    kNone,
    // Every step waits `ms`.
    kConstant,
    // The mean is `ms`.
    kExponential,
    // A Pareto distribution: at least `ms`, and more than x with the probability (ms / x)^shape.
    kPareto,
  };
  // Inclusive.
  struct Ranks {
    uint32_t first = 0;
    uint32_t last = 0;
  };

  Kind kind = Kind::kNone;
  double ms = 0;
  double shape = 0;
  // No delay is longer: a Pareto distribution has no largest value.
  double max_ms = 10'000;
  // Empty: all ranks.
  std::vector<Ranks> ranks;
};

// Parses the value of --straggler: a kind and its settings,
//   constant:ms=20
//   exponential:mean_ms=5
//   pareto:shape=1.5,scale_ms=5
// each also with max_ms=N and with ranks=0+2+8-11. Empty: no delays. INVALID_ARGUMENT names the
// setting.
absl::StatusOr<Straggler> ParseStraggler(absl::string_view text);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_STRAGGLER_H_
