#include "client_lib/base/failpoint.h"

namespace pawl {

// Weak: the definition in testing/failpoint_control.cc replaces it where that is linked.
__attribute__((weak)) bool FailpointHit(const char*) { return false; }

}  // namespace pawl
