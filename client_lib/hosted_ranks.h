// How many ranks one process may host.
#ifndef PAWL_CLIENT_LIB_HOSTED_RANKS_H_
#define PAWL_CLIENT_LIB_HOSTED_RANKS_H_

#include <cstddef>

namespace pawl {

// Each has two threads, in an evaluation a third one, and its own gradients; and the client's
// connections have room for what each sends at the end of a step (connect.cc).
inline constexpr size_t kMaxHostedRanks = 256;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_HOSTED_RANKS_H_
