// Calls to a server by a program that is not a node of its job.
#ifndef PAWL_DEPLOY_PAWLCTL_SERVER_CONNECTION_H_
#define PAWL_DEPLOY_PAWLCTL_SERVER_CONNECTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/security/security.h"
#include "proto/scheduler.pb.h"
#include "proto/server_control.grpc.pb.h"

namespace pawl {

// Connects on the first call. Each call blocks for at most `timeout`. An error names the server
// and, after a timeout, what to try. Thread-safe.
class ServerConnection {
 public:
  // `security` outlives this.
  ServerConnection(const ServerAddress& server, const Security& security);

  absl::StatusOr<FingerprintResponse> Fingerprint(const FingerprintRequest& request,
                                                  MonotonicDuration timeout);
  absl::StatusOr<InspectResponse> Inspect(const InspectRequest& request, MonotonicDuration timeout);

 private:
  absl::Status ToStatus(const grpc::Status& status) const;

  const ServerAddress server_;
  const std::unique_ptr<ServerControl::Stub> stub_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_SERVER_CONNECTION_H_
