// Where a scheduler listens.
#ifndef PAWL_SCHEDULER_RPC_LISTENER_H_
#define PAWL_SCHEDULER_RPC_LISTENER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/host_port.h"
#include "grpcpp/grpcpp.h"

namespace pawl {

struct Listener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// Serves `service`, health and reflection at `address`. Port 0: at the port that the file `former`
// names, if there is one and it is free, since nodes look for this scheduler there; else at any
// free one. FAILED_PRECONDITION: it cannot listen there. `service` outlives the listener.
absl::StatusOr<Listener> Listen(const HostPort& address, const std::string& former,
                                grpc::Service& service);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_LISTENER_H_
