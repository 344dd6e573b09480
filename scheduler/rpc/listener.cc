#include "scheduler/rpc/listener.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"

namespace pawl {
namespace {

// 0 if the file has no port.
int PortIn(const std::string& path) {
  std::ifstream file(path);
  std::string address;
  std::getline(file, address);
  const absl::StatusOr<HostPort> former = ParseHostPort(address);
  return former.ok() ? former->port : 0;
}

absl::StatusOr<Listener> ListenAt(const std::string& host, int port,
                                  const ListenerSecurity& security, grpc::Service& service) {
  Listener listener;
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  listener.guard = std::make_unique<GuardedPort>(security);
  PAWL_RETURN_IF_ERROR(listener.guard->Listen(builder, absl::StrCat(host, ":", port)));
  builder.RegisterService(&service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) return absl::FailedPreconditionError("gRPC cannot serve there");
  listener.port = listener.guard->port();
  listener.guard->Start();
  return listener;
}

}  // namespace

absl::StatusOr<Listener> Listen(const HostPort& address, const std::string& former,
                                const ListenerSecurity& security, grpc::Service& service) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  if (const int port = address.port == 0 ? PortIn(former) : 0; port != 0) {
    absl::StatusOr<Listener> listener = ListenAt(address.host, port, security, service);
    if (listener.ok()) return listener;
  }
  absl::StatusOr<Listener> listener = ListenAt(address.host, address.port, security, service);
  if (listener.ok()) return listener;
  return absl::FailedPreconditionError(listener.status().message());
}

}  // namespace pawl
