// Client::Connect over gRPC. Apart from client.cc, so that tests can build the client without gRPC.
#include <utility>

#include "absl/synchronization/mutex.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"
#include "client_lib/process/malloc_tuning.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "client_lib/security/security.h"
#include "client_lib/session/messenger.h"

namespace pawl {

static_assert(3 * kMaxMessagesPerServer + kMaxHostedRanks <= kMaxStreamsPerConnection,
              "room for the messages of three steps and for one EndStep per rank");

namespace {

// The credentials and channels of a client. The channels use the credentials.
struct Connections {
  Connections(std::shared_ptr<Security> own_security, const std::string& scheduler)
      : security(std::move(own_security)),
        transport(security->To(RoleSet(PeerRole::kServer))),
        control(scheduler, security->To(RoleSet(PeerRole::kScheduler))),
        link(scheduler, security->To(RoleSet(PeerRole::kScheduler))) {}

  const std::shared_ptr<Security> security;
  GrpcTransport transport;
  GrpcControlChannel control;
  GrpcControlChannel link;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  if (options.scheduler.empty()) {
    return absl::InvalidArgumentError(
        "ClientOptions::scheduler is empty; set it to the scheduler's host:port");
  }
  if (options.tune_process) {
    KeepFreedMemory();
    // Debian's Abseil maintains a global graph of all locks, which gRPC takes too, behind a single
    // lock.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  }
  if (!options.ignores_environment) {
    // Workers are daemons, which have certificates.
    options.security = options.role == WORKER_ROLE
                           ? WithEnvironment(std::move(options.security))
                           : WithEnvironmentOrToken(std::move(options.security));
  }
  absl::StatusOr<std::unique_ptr<Security>> security = Security::Open(
      options.security,
      options.role == WORKER_ROLE
          ? RoleSet(PeerRole::kWorker)
          : RoleSet(PeerRole::kWorker, PeerRole::kClient, PeerRole::kReader, PeerRole::kOperator));
  if (!security.ok()) return Annotate(security.status(), "ClientOptions::security");
  PAWL_RETURN_IF_ERROR(
      Annotate((*security)->CheckAddresses("scheduler", options.scheduler), "ClientOptions"));
  const auto connections = std::make_shared<Connections>(*std::move(security), options.scheduler);
  options.security_report = [security = connections->security] { return security->Report(); };
  return Connect(std::move(options), {connections, &connections->transport},
                 {connections, &connections->control}, {connections, &connections->link});
}

}  // namespace pawl
