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

HealthEndpoint::HealthEndpoint(std::unique_ptr<GuardedPort> guard,
                               std::unique_ptr<grpc::Server> server, std::string address)
    : guard_(std::move(guard)), server_(std::move(server)), address_(std::move(address)) {
  SetServing(false);
}

absl::StatusOr<std::unique_ptr<HealthEndpoint>> HealthEndpoint::Listen(const std::string& listen,
                                                                       ListenerSecurity security) {
  PAWL_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(listen));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  auto guard = std::make_unique<GuardedPort>(std::move(security));
  PAWL_RETURN_IF_ERROR(guard->Listen(builder, listen));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("gRPC cannot serve on ", listen));
  guard->Start();
  std::string address = absl::StrCat(at.host, ":", guard->port());
  return std::unique_ptr<HealthEndpoint>(
      new HealthEndpoint(std::move(guard), std::move(server), std::move(address)));
}

HealthEndpoint::~HealthEndpoint() {
  guard_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

void HealthEndpoint::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

}  // namespace pawl
