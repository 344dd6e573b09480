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

// One connection and one thread, which runs every `done` and `action`, one after the other: apart
// from gRPC's own threads, so that heartbeats go out and are answered in time however busy those
// are with requests. An action that blocks holds back this channel alone. To connect takes one of
// gRPC's threads that is free.
class GrpcControlChannel final : public ControlChannel {
 public:
  explicit GrpcControlChannel(
      const std::string& address,
      std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials());
  // Shuts down and waits for all calls and actions. Not to be run by one of them.
  ~GrpcControlChannel() override;

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
            Transport::Done done) override;
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override;
  void Shutdown() override;

 private:
  // What the queue gives back when it is over.
  class Event;
  class OneCall;
  class Timer;

  void Run();

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;

  Mutex mu_;
  CondVar idle_;
  bool shut_down_ PAWL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<Event*> events_ PAWL_GUARDED_BY(mu_);

  // Last: it uses the rest.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONTROL_CHANNEL_H_
