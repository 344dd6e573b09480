#include "client_lib/base/failpoint.h"

namespace pawl {

// Weak: the one of failpoint_control.cc takes its place wherever that is linked too.
__attribute__((weak)) bool FailpointHit(const char*) { return false; }

}  // namespace pawl
