// Listens for the rpcs of a scheduler.
#ifndef PAWL_SCHEDULER_RPC_LISTENER_H_
#define PAWL_SCHEDULER_RPC_LISTENER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/host_port.h"
#include "client_lib/security/admission/guarded_port.h"
#include "grpcpp/grpcpp.h"

namespace pawl {

struct Listener {
  // Outlives the server.
  std::unique_ptr<GuardedPort> guard;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// Serves `service`, health and reflection at `address`, to the clients that `security` admits. Port
// 0: the port in the address file `former`, if it is free, because nodes connect to it; else any
// free port. FAILED_PRECONDITION: it cannot listen there. `service` outlives the listener.
absl::StatusOr<Listener> Listen(const HostPort& address, const std::string& former,
                                const ListenerSecurity& security, grpc::Service& service);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_LISTENER_H_
