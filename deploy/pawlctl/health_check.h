// Asks a daemon for its health, as probes of service managers do.
#ifndef PAWL_DEPLOY_PAWLCTL_HEALTH_CHECK_H_
#define PAWL_DEPLOY_PAWLCTL_HEALTH_CHECK_H_

#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/security/security.h"

namespace pawl {

// Whether the scheduler, server or worker at `address` answers grpc.health.v1.Health/Check with
// SERVING. Blocks for at most `timeout`. An error names the address.
absl::StatusOr<bool> IsServing(const std::string& address, const Security& security,
                               MonotonicDuration timeout);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_HEALTH_CHECK_H_
