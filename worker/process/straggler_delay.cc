#include "worker/process/straggler_delay.h"

#include <algorithm>
#include <chrono>

#include "absl/algorithm/container.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/random.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

// Separates these numbers from the others that the job's seed determines.
constexpr uint64_t kStream = 0x7374726167676c65;  // "straggle"

// From the open interval (0, 1), so that its logarithm is finite and not 0.
double Uniform(uint64_t job_seed, uint32_t rank, uint64_t step) {
  const PhiloxCounter random = Philox4x32(step, rank, Mix64(job_seed ^ kStream));
  const uint64_t bits = (uint64_t{random[1]} << 32 | random[0]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace

MonotonicDuration DelayOf(const Straggler& straggler, uint64_t job_seed, uint32_t rank,
                          uint64_t step) {
  const bool is_slow = straggler.ranks.empty() ||
                       absl::c_any_of(straggler.ranks, [&](const Straggler::Ranks& range) {
                         return range.first <= rank && rank <= range.last;
                       });
  using Kind = Straggler::Kind;
  if (straggler.kind == Kind::kNone || !is_slow) return MonotonicDuration::zero();
  double delay_ms = straggler.ms;
  if (straggler.kind != Kind::kConstant) {
    const double log = DeterministicLog(Uniform(job_seed, rank, step));
    delay_ms = straggler.kind == Kind::kExponential
                   ? -straggler.ms * log
                   : straggler.ms * DeterministicExp(-log / straggler.shape);
  }
  const std::chrono::duration<double, std::milli> delay(std::min(delay_ms, straggler.max_ms));
  return std::chrono::duration_cast<MonotonicDuration>(delay);
}

}  // namespace pawl
