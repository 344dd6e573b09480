// The gRPC server of a daemon without services of its own.
#ifndef PAWL_CLIENT_LIB_DAEMON_HEALTH_ENDPOINT_H_
#define PAWL_CLIENT_LIB_DAEMON_HEALTH_ENDPOINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/security/admission/guarded_port.h"
#include "grpcpp/grpcpp.h"

namespace pawl {

// Serves grpc.health.v1.Health, NOT_SERVING at first, and server reflection. Thread-safe.
class HealthEndpoint {
 public:
  // Listens on `listen` (host:port; port 0 means any free one). INVALID_ARGUMENT if it is malformed
  // or cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HealthEndpoint>> Listen(const std::string& listen,
                                                                ListenerSecurity security);
  ~HealthEndpoint();

  // host:port with the actual port.
  const std::string& address() const { return address_; }
  void SetServing(bool serving);

 private:
  HealthEndpoint(std::unique_ptr<GuardedPort> guard, std::unique_ptr<grpc::Server> server,
                 std::string address);

  // Outlives the server.
  const std::unique_ptr<GuardedPort> guard_;
  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_HEALTH_ENDPOINT_H_
