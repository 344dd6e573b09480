// Whether a registration is one that a node can send.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_REGISTRATION_CHECK_H_
#define PAWL_SCHEDULER_MEMBERSHIP_REGISTRATION_CHECK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace pawl {

inline constexpr size_t kMaxVersionBytes = 64;
inline constexpr size_t kMaxAddressBytes = 256;
inline constexpr size_t kMaxDescriptionBytes = 256;
inline constexpr size_t kMaxNodeNameBytes = 64;
inline constexpr size_t kMaxZoneBytes = 64;

// Looks at the request alone, not at who else is there: the right fields for its role, within the
// limits, printable, and an address at which others can reach the server. INVALID_ARGUMENT names
// the field.
absl::Status CheckRegistration(const RegisterRequest& request);

// OK unless it is a server that cannot replicate to the servers of this version: UNIMPLEMENTED,
// naming both ranges.
absl::Status CheckServerProtocol(const RegisterRequest& request);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_REGISTRATION_CHECK_H_
