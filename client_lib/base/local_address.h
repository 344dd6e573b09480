// At which of its addresses others reach this machine.
#ifndef PAWL_CLIENT_LIB_BASE_LOCAL_ADDRESS_H_
#define PAWL_CLIENT_LIB_BASE_LOCAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace pawl {

// This machine's address, as a number, on the way to `addresses`, a host:port or several with
// commas between them, of which the first that can be reached counts. Nothing is sent, but names
// are looked up, for as long as the system's resolver takes. Meant for the scheduler's address:
// whoever it can be reached by reaches servers and workers by the same network. Where it is
// 127.0.0.1 so is this: a cluster of more machines must call the scheduler by another name.
// UNAVAILABLE without a way there.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& addresses);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_LOCAL_ADDRESS_H_
