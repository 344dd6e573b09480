// How long to wait before what has failed is tried again.
#ifndef PAWL_CLIENT_LIB_RPC_GROWING_PAUSE_H_
#define PAWL_CLIENT_LIB_RPC_GROWING_PAUSE_H_

#include <algorithm>
#include <cstdint>

#include "client_lib/base/clock.h"

namespace pawl {

// `first` after the first failure in a row, twice as long after each further one, `longest` at
// most.
inline MonotonicDuration GrowingPause(uint32_t failures, MonotonicDuration first,
                                      MonotonicDuration longest) {
  MonotonicDuration pause = first;
  for (uint32_t i = 1; i < failures && pause < longest; ++i) pause *= 2;
  return std::min(pause, longest);
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GROWING_PAUSE_H_
