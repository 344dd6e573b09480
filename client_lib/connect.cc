// Client::Connect over gRPC, apart from client.cc so that the client can be built and tested without gRPC.
#include <utility>

#include "client_lib/client.h"
#include "client_lib/rpc/grpc_transport.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  if (options.scheduler.empty()) {
    return absl::InvalidArgumentError("ClientOptions::scheduler is empty; set it to the scheduler's host:port");
  }
  auto control = std::make_shared<GrpcControlChannel>(options.scheduler);
  return Connect(std::move(options), std::make_shared<GrpcTransport>(), std::move(control));
}

}  // namespace pawl
