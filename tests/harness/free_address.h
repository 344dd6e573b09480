// Addresses for processes of tests that must be known before they listen.
#ifndef PAWL_TESTS_HARNESS_FREE_ADDRESS_H_
#define PAWL_TESTS_HARNESS_FREE_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace pawl {

// An address of this machine, 127.0.0.1:PORT, that nothing listens on now. Below the ports that the
// system gives to outgoing connections, one of which could otherwise have it when its process is
// restarted. UNAVAILABLE if none is found.
absl::StatusOr<std::string> FreeAddress();

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_FREE_ADDRESS_H_
