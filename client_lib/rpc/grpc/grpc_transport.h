// Transport over gRPC.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_TRANSPORT_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/grpc/grpc_calls.h"
#include "client_lib/rpc/grpc/grpc_control_channel.h"  // IWYU pragma: export
#include "client_lib/rpc/transport.h"
#include "grpcpp/security/credentials.h"

namespace pawl {

// The number of addresses that a transport may have connections to; further calls get
// RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxServerAddresses = 4096;
// The delay between Forget and closing the connections, if no call uses them. Otherwise the
// transport checks again after twice the time, up to kMaxBorrowAfterRpc.
inline constexpr std::chrono::milliseconds kCloseForgottenAfter{20};

// Two connections to each server: one for pulls, which may be pending on the server and then count
// against the connection's limit on streams, and one for everything that a pending pull may wait
// for. Connections are opened on first use and reopened when broken (grpc_settings.h).
class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(std::shared_ptr<grpc::ChannelCredentials> credentials);
  ~GrpcTransport() override;

  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override;
  void CancelCalls(const std::string& address) override;
  void Forget(const std::string& address) override;
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override;
  void Shutdown() override;

  // The number of addresses with connections.
  size_t addresses() const {
    MutexLock lock(mu_);
    return connections_.size();
  }

 private:
  struct Connections {
    std::shared_ptr<grpc::GenericStub> push;
    std::shared_ptr<grpc::GenericStub> pull;
  };

  // Drops a connection that keeps memory for too long; the next call makes a new one.
  void Abandon(const std::string& address, const std::shared_ptr<grpc::GenericStub>& stub);
  // Closes, after `delay`, the abandoned connections that no call uses; retries later for the rest.
  void CloseAbandonedAfter(MonotonicDuration delay);
  // Runs as an action of After, hence on a thread that may drop the last reference to a channel.
  // Returns true if some connections remain.
  bool CloseAbandoned();

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::atomic<bool> shut_down_{false};
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Connections> connections_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<grpc::GenericStub>> abandoned_ PAWL_GUARDED_BY(mu_);
  // After Shutdown: no further connections are kept.
  bool closing_ PAWL_GUARDED_BY(mu_) = false;
  // Last: its destructor waits for users of the members above.
  GrpcCalls calls_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_TRANSPORT_H_
