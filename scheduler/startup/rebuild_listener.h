// Listens in place of a scheduler that has lost its state, until the servers have reported their
// partitions.
#ifndef PAWL_SCHEDULER_STARTUP_REBUILD_LISTENER_H_
#define PAWL_SCHEDULER_STARTUP_REBUILD_LISTENER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/admission/guarded_port.h"
#include "client_lib/security/audit_log.h"
#include "client_lib/security/peer.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "proto/scheduler.pb.h"
#include "scheduler/startup/rebuild.h"

namespace pawl {

// Answers calls with RebuildCensus. Thread-safe.
class RebuildListener final : private grpc::CallbackGenericService {
 public:
  // Port 0 picks a free port. FAILED_PRECONDITION: it cannot listen on the address.
  // `audit`, unless null, gets the operators' calls, which are refused, and outlives this.
  static absl::StatusOr<std::unique_ptr<RebuildListener>> Listen(
      const HostPort& address, ListenerSecurity security, AuditLog* audit = nullptr,
      size_t max_bytes = kMaxRegistrationBytes);

  // Ends all calls.
  ~RebuildListener() override;

  int port() const { return guard_->port(); }

  // See RebuildCensus.
  std::vector<RegisterRequest> Registrations() const;

 private:
  class Call;

  RebuildListener(AuditLog* audit, size_t max_bytes) : audit_(audit), census_(max_bytes) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;
  grpc::Status Answer(const std::string& method, const std::optional<Peer>& peer,
                      const std::string& address, grpc::ByteBuffer& request);

  AuditLog* const audit_;
  mutable Mutex mu_;
  RebuildCensus census_ PAWL_GUARDED_BY(mu_);
  // Outlives the server.
  std::unique_ptr<GuardedPort> guard_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STARTUP_REBUILD_LISTENER_H_
