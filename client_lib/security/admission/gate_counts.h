// What the gate has decided about the calls of some connections.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_GATE_COUNTS_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_GATE_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace pawl {

// Counters since the start. The gate decides as soon as it has a call's metadata, before the
// message. Thread-safe.
struct GateCounts {
  std::atomic<uint64_t> passed{0};
  std::atomic<uint64_t> refused{0};
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_GATE_COUNTS_H_
