// The processor's floating-point mode, on which the bits of every result depend.
#ifndef PAWL_CLIENT_LIB_DAEMON_FLOATING_POINT_MODE_H_
#define PAWL_CLIENT_LIB_DAEMON_FLOATING_POINT_MODE_H_

#include "absl/status/status.h"

namespace pawl {

// FAILED_PRECONDITION, naming the setting, unless the calling thread rounds to nearest and computes
// with subnormal numbers, which is the default of a process. A library that was linked with
// -ffast-math changes this for the whole process when it is loaded. Threads inherit the mode.
absl::Status CheckFloatingPointMode();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_FLOATING_POINT_MODE_H_
