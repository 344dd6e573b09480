// ControlChannel over gRPC.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONTROL_CHANNEL_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONTROL_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/control_channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"

namespace pawl {

// One connection, and one thread that runs every `done` and `action` in turn. The thread is
// separate from gRPC's own, so that heartbeats are sent and answered in time however busy those
// are. An action that blocks delays this channel only. Connecting needs a free thread of gRPC.
class GrpcControlChannel final : public ControlChannel {
 public:
  GrpcControlChannel(const std::string& address,
                     std::shared_ptr<grpc::ChannelCredentials> credentials);
  // Shuts down and waits for all calls and actions. Must not run inside one of them.
  ~GrpcControlChannel() override;

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
            Transport::Done done) override;
  void SetNodeTicket(const std::string& ticket) override;
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override;
  void Shutdown() override;

 private:
  // The tag that the queue returns at its end.
  class Event;
  class OneCall;
  class Timer;

  void Run();

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;

  Mutex mu_;
  CondVar idle_;
  bool shut_down_ PAWL_GUARDED_BY(mu_) = false;
  std::string node_ticket_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_set<Event*> events_ PAWL_GUARDED_BY(mu_);

  // Last: it uses the members above.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONTROL_CHANNEL_H_
