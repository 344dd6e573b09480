#include "scheduler/rpc/listener.h"

#include <fstream>

#include "absl/strings/str_cat.h"
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

Listener ListenAt(const std::string& host, int port,
                  const std::shared_ptr<grpc::ServerCredentials>& credentials,
                  grpc::Service& service) {
  Listener listener;
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  builder.AddListeningPort(absl::StrCat(host, ":", port), credentials, &listener.port);
  builder.RegisterService(&service);
  listener.server = builder.BuildAndStart();
  if (listener.port == 0) listener.server = nullptr;
  return listener;
}

}  // namespace

absl::StatusOr<Listener> Listen(const HostPort& address, const std::string& former,
                                std::shared_ptr<grpc::ServerCredentials> credentials,
                                grpc::Service& service) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  Listener listener;
  if (const int port = address.port == 0 ? PortIn(former) : 0; port != 0)
    listener = ListenAt(address.host, port, credentials, service);
  if (listener.server == nullptr)
    listener = ListenAt(address.host, address.port, credentials, service);
  if (listener.server != nullptr) return listener;
  return absl::FailedPreconditionError(
      "cannot listen there; is the port taken, or the host another machine's?");
}

}  // namespace pawl
