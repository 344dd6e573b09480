#include "client_lib/daemon/health_endpoint.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"

namespace pawl {
namespace {

// The time that calls in flight get to end.
constexpr std::chrono::milliseconds kShutdownGrace{200};

}  // namespace

HealthEndpoint::HealthEndpoint(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {
  SetServing(false);
}

absl::StatusOr<std::unique_ptr<HealthEndpoint>> HealthEndpoint::Listen(
    const std::string& listen, std::shared_ptr<grpc::ServerCredentials> credentials) {
  PAWL_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(listen));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  int port = 0;
  builder.AddListeningPort(listen, std::move(credentials), &port);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", listen, "; the port may be in use, or the host is not this machine"));
  }
  return std::unique_ptr<HealthEndpoint>(
      new HealthEndpoint(std::move(server), absl::StrCat(at.host, ":", port)));
}

HealthEndpoint::~HealthEndpoint() {
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

void HealthEndpoint::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

}  // namespace pawl
