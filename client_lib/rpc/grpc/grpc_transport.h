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

// Addresses that a transport has connections to; beyond it calls get RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxServerAddresses = 4096;
// After Forget, so long until the connections are closed if no call uses them any more; else it is
// looked again after twice the time, up to kMaxLoanAfterRpc.
inline constexpr std::chrono::milliseconds kCloseForgottenAfter{20};

// Two connections to each server: one for pulls, which may be pending there and then
// count against the connection's limit on streams, and one for everything that a pending pull may
// wait for. Connections are made when first used and broken ones again, as grpc_settings.h says.
class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(
      std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials());
  ~GrpcTransport() override;

  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override;
  void CancelCalls(const std::string& address) override;
  void Forget(const std::string& address) override;
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override;
  void Shutdown() override;

  // To which it has connections.
  size_t addresses() const {
    MutexLock lock(mu_);
    return connections_.size();
  }

 private:
  struct Connections {
    std::shared_ptr<grpc::GenericStub> push;
    std::shared_ptr<grpc::GenericStub> pull;
  };

  // Gives up a connection that holds on to memory for too long; the next call makes a new one.
  void Abandon(const std::string& address, const std::shared_ptr<grpc::GenericStub>& stub);
  // Closes the abandoned connections that no call uses any more, after `delay`; those that are left
  // later.
  void CloseAbandonedAfter(MonotonicDuration delay);
  // Runs as an action of After, hence on a thread where the last reference to a channel may go.
  // True if some are left.
  bool CloseAbandoned();

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::atomic<bool> shut_down_{false};
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Connections> connections_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<grpc::GenericStub>> abandoned_ PAWL_GUARDED_BY(mu_);
  // Nothing is kept any more.
  bool closing_ PAWL_GUARDED_BY(mu_) = false;
  // Last: it waits for what may use the rest.
  GrpcCalls calls_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_TRANSPORT_H_
