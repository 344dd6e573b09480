#include "client_lib/daemon/floating_point_mode.h"

#include <cfenv>
#include <limits>

namespace pawl {

absl::Status CheckFloatingPointMode() {
  if (std::fegetround() != FE_TONEAREST) {
    return absl::FailedPreconditionError(
        "the processor does not round to nearest: a library that this process loads has "
        "changed it");
  }
  // Volatile: the compiler would compute it otherwise.
  volatile double smallest_normal = std::numeric_limits<double>::min();
  volatile double subnormal = smallest_normal / 2;
  if (subnormal == 0 || subnormal * 2 != smallest_normal) {
    return absl::FailedPreconditionError(
        "the processor flushes subnormal numbers to zero: a library that this process loads, "
        "linked with -ffast-math perhaps, has changed it");
  }
  return absl::OkStatus();
}

}  // namespace pawl
