// The port of a gRPC server, which limits connections.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_GUARDED_PORT_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_GUARDED_PORT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/admission/connection_ledger.h"
#include "client_lib/security/admission/connection_table.h"
#include "client_lib/security/admission/gate_counts.h"
#include "client_lib/security/admission/peer_quotas.h"
#include "client_lib/security/admission/quota_interceptor.h"
#include "client_lib/security/rate_limiter.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace pawl {

class ConnectionWatch;

// Counts for status and metrics.
struct AdmissionFigures {
  // Connections now.
  std::atomic<uint64_t> connections{0};
  // Since the start: connections closed because of a limit, or before a handshake began.
  std::atomic<uint64_t> refused_connections{0};
  // Since the start: connections closed because of what they cost, and new ones of their excluded
  // peers.
  std::atomic<uint64_t> closed_connections{0};
};

// How a listener knows its peers, and what it grants them.
struct ListenerSecurity {
  // Without quotas: `credentials` decide on everything.
  // NOLINTNEXTLINE: implicit, because credentials are all that most tests have.
  ListenerSecurity(std::shared_ptr<grpc::ServerCredentials> credentials_of_port)
      : credentials(std::move(credentials_of_port)) {}

  std::shared_ptr<grpc::ServerCredentials> credentials;
  // Whether peers begin with a TLS handshake; otherwise with the preface of HTTP/2.
  bool is_tls = false;
  ConnectionLimits connections;
  // The memory that gRPC may use for all connections of the port: beyond it, gRPC reads less and
  // cancels the largest calls. Otherwise messages that never end could fill all memory.
  uint64_t max_memory_bytes = uint64_t{1} << 30;
  // Null: calls are not limited by peer, because without certificates peers cannot be told apart.
  std::shared_ptr<PeerQuotas> quotas;
  // With quotas: limits on what never becomes a call.
  LedgerLimits ledger;
  // Credentials like those above that count what the gate decides. Null: it is not counted.
  std::function<std::shared_ptr<grpc::ServerCredentials>(std::shared_ptr<GateCounts>)>
      counting_credentials;
  // Peers that the ledger ignores, by the URIs of their certificate. Null: none.
  std::function<bool(const std::vector<std::string>& uris)> is_trusted;
  // Grows when certificates have been revoked. The port then closes all connections, so that their
  // peers must pass another handshake. Null: connections stay.
  std::function<uint64_t()> revocations;
  // Null: not counted.
  std::shared_ptr<AdmissionFigures> figures;
};

// Accepts connections in place of gRPC 1.51, which accepts without limit, keeps silent connections
// in expensive handshakes, and stops accepting once a process has no file descriptor left.
//
// A thread of this class accepts. It hands a connection over to gRPC when its first bytes have
// come and look like those of a gRPC client; garbage and silence cost little. It limits the
// connections of the port and of each remote host, and the handshakes of each host. With quotas it
// also closes connections that cost much and give nothing (ConnectionLedger).
//
//   GuardedPort port(security);
//   port.Listen(builder, "0.0.0.0:7000");
//   server = builder.BuildAndStart();
//   port.Start();
//   ...
//   port.Stop();
//   server->Shutdown();
//
// Outlives the server. For the thread that starts and stops the server.
class GuardedPort {
 public:
  explicit GuardedPort(ListenerSecurity security);
  // Stops.
  ~GuardedPort();
  GuardedPort(const GuardedPort&) = delete;
  GuardedPort& operator=(const GuardedPort&) = delete;

  // Binds the address host:port, and adds the port to the server. Port 0 takes a free one; a
  // wildcard stands for IPv4 and IPv6. INVALID_ARGUMENT, with the reason: it cannot listen there.
  absl::Status Listen(grpc::ServerBuilder& builder, const std::string& address);
  int port() const { return port_; }

  // Accepts connections from now on. REQUIRES: the server has started.
  void Start();
  // Accepts no more connections, and lets calls that wait for a quota continue, so that the server
  // can shut down.
  void Stop();

 private:
  absl::Status Bind(const std::string& address);
  void Run();
  // How long the thread waits for events.
  std::chrono::milliseconds Pause(MonotonicTime now);
  // Runs the due work.
  void Advance(MonotonicTime now);
  void Accept(int listener);
  void Admit(int descriptor, const RemoteAddress& remote);
  // Whether there is room for another connection, which is not added.
  bool HasRoomFor(int descriptor, const RemoteAddress& remote);
  // Makes room for another connection.
  bool CloseOldestSilent();
  // The process lacks descriptors: accepts nothing for a while.
  void PauseListeners();
  void SetListening(bool listening);
  void Look(int descriptor);
  void HandOver(int descriptor);
  void Close(int descriptor);
  void Sweep();
  void Watch();
  // Returns false if the process lacks a descriptor for it.
  bool CloseHandedOver(const std::string& connection);
  void CloseAllIfRevoked();

  const ListenerSecurity security_;
  // Null without quotas.
  std::unique_ptr<ConnectionWatch> watch_;
  std::unique_ptr<QuotaEnforcer> enforcer_;
  // One for each slot of the ledger, if the gate's decisions are counted.
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> acceptors_;
  std::vector<int> listeners_;
  int port_ = 0;
  int epoll_ = -1;
  int wake_ = -1;
  std::atomic<bool> stopping_{false};

  Mutex mu_;
  ConnectionTable table_ PAWL_GUARDED_BY(mu_);
  // Used by the thread only.
  MonotonicTime swept_at_;
  std::optional<MonotonicTime> paused_until_;
  size_t looks_ = 0;
  // The last value of ListenerSecurity::revocations.
  uint64_t revocations_ = 0;
  // To be closed once the process has descriptors.
  std::vector<ConnectionLedger::Offender> unclosed_;
  RateLimiter log_limiter_{kMaxRefusalsLoggedPerSecond};
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_GUARDED_PORT_H_
