// Addresses for test processes, known before the processes listen.
#ifndef PAWL_TESTS_HARNESS_FREE_ADDRESS_H_
#define PAWL_TESTS_HARNESS_FREE_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace pawl {

// Returns an address 127.0.0.1:PORT that is not in use. The port is below the range for outgoing
// connections, which could otherwise take it while its process restarts. UNAVAILABLE if none is
// free.
absl::StatusOr<std::string> FreeAddress();

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_FREE_ADDRESS_H_
