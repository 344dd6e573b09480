// Transport over gRPC.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_TRANSPORT_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/grpc_calls.h"
#include "client_lib/rpc/grpc_control_channel.h"  // IWYU pragma: export
#include "client_lib/rpc/transport.h"
#include "grpcpp/security/credentials.h"

namespace pawl {

// Addresses that a transport has connections to; beyond it calls get RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxServerAddresses = 4096;

// Two connections to each server: one for pulls, which may be parked there and then
// count against the connection's limit on streams, and one for everything that a parked pull may wait for.
// Connections are made when first used and broken ones again, as grpc_settings.h says.
class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials());
  ~GrpcTransport() override;

  void Call(const std::string& address, Method method, OutgoingMessage request, MonotonicDuration timeout,
            Done done) override;
  void CancelCalls(const std::string& address) override;
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override;
  void Shutdown() override;

 private:
  struct Connections {
    std::shared_ptr<grpc::GenericStub> push;
    std::shared_ptr<grpc::GenericStub> pull;
  };

  // Gives up a connection that holds on to memory for too long; the next call makes a new one.
  void Abandon(const std::string& address, const std::shared_ptr<grpc::GenericStub>& stub);
  // Closes the abandoned connections that no call uses any more.
  void CloseAbandoned();

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::atomic<bool> shut_down_{false};
  Mutex mu_;
  absl::flat_hash_map<std::string, Connections> connections_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<grpc::GenericStub>> abandoned_ PAWL_GUARDED_BY(mu_);
  // Last: it waits for what may use the rest.
  GrpcCalls calls_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_TRANSPORT_H_
