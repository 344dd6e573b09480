// Applies PeerQuotas to the calls of a gRPC server.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_QUOTA_INTERCEPTOR_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_QUOTA_INTERCEPTOR_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/base/mutex.h"
#include "client_lib/security/admission/peer_quotas.h"
#include "grpcpp/server_builder.h"

namespace pawl {

class ConnectionLedger;

// Sees every call of a server after the gate and before the handler, with its request, and the
// status that ends it. A call that must wait reaches its handler later, on a thread of this class;
// a refused call's handler finds out with RefusalOf, and a refused call of a service that is not
// Pawl's is cancelled. Outlives the server.
class QuotaEnforcer {
 public:
  // `close` ends a connection, by RemoteAddress::connection. Thread-safe.
  using CloseConnection = std::function<void(const std::string& connection)>;

  // `ledger` hears of every call and outlives this.
  QuotaEnforcer(std::shared_ptr<PeerQuotas> quotas, ConnectionLedger& ledger,
                CloseConnection close);
  // Stops; see Stop.
  ~QuotaEnforcer();
  QuotaEnforcer(const QuotaEnforcer&) = delete;
  QuotaEnforcer& operator=(const QuotaEnforcer&) = delete;

  // Call before BuildAndStart.
  void AddTo(grpc::ServerBuilder& builder);
  // Serves all calls that wait, and later ones at once, because the server shuts down.
  void Stop();

 private:
  class Interceptor;
  class Factory;

  void Run();
  void Wake();
  static void Continue(const std::vector<PeerQuotas::Call*>& calls);

  const std::shared_ptr<PeerQuotas> quotas_;
  ConnectionLedger& ledger_;
  const CloseConnection close_;
  Mutex mu_;
  CondVar wake_;
  bool woken_ PAWL_GUARDED_BY(mu_) = false;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::atomic<bool> stopped_{false};
  // Last: it uses the members above.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_QUOTA_INTERCEPTOR_H_
