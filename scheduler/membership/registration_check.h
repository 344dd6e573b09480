// Validates registrations.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_REGISTRATION_CHECK_H_
#define PAWL_SCHEDULER_MEMBERSHIP_REGISTRATION_CHECK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

inline constexpr size_t kMaxVersionBytes = 64;
inline constexpr size_t kMaxAddressBytes = 256;
inline constexpr size_t kMaxDescriptionBytes = 256;
inline constexpr size_t kMaxNodeNameBytes = 64;
inline constexpr size_t kMaxZoneBytes = 64;

// Checks the request alone, not against other nodes: that it has the right fields for its role,
// within the limits and printable, and for a server an address that others can reach.
// INVALID_ARGUMENT names the field.
absl::Status CheckRegistration(const RegisterRequest& request);

// UNIMPLEMENTED, naming both protocol ranges, for a server that cannot replicate with servers of
// this version. OK otherwise.
absl::Status CheckServerProtocol(const RegisterRequest& request);

// UNIMPLEMENTED, naming the field of the job, for a worker that is too old for the job. OK
// otherwise.
absl::Status CheckWorkerProtocol(const RegisterRequest& request, const Job& job);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_REGISTRATION_CHECK_H_
