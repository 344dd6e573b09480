// How long bytes may be on their way.
#ifndef PAWL_CLIENT_LIB_RPC_TRANSFER_TIME_H_
#define PAWL_CLIENT_LIB_RPC_TRANSFER_TIME_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "client_lib/base/clock.h"

namespace pawl {

// The slowest network that deadlines are made for.
inline constexpr uint64_t kMinBytesPerSecond = 20'000'000;

// What a message of so many bytes takes on it: a part of the message's deadline, which allows for
// more besides.
inline MonotonicDuration TransferTime(size_t bytes) {
  return std::chrono::milliseconds(1000 * bytes / kMinBytesPerSecond);
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_TRANSFER_TIME_H_
