// Calls servers by gRPC.
#ifndef PAWL_SCHEDULER_RPC_GRPC_SERVER_CALLER_H_
#define PAWL_SCHEDULER_RPC_GRPC_SERVER_CALLER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "client_lib/base/mutex.h"
#include "google/protobuf/message.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/security/credentials.h"
#include "scheduler/rpc/server_caller.h"

namespace pawl {

// Has one channel for each server until KeepOnly drops it: kMaxServers bounds the servers that are
// present, but not those of a job's whole duration. Thread-safe.
class GrpcServerCaller final : public ServerCaller {
 public:
  explicit GrpcServerCaller(std::shared_ptr<grpc::ChannelCredentials> credentials)
      : credentials_(std::move(credentials)) {}
  ~GrpcServerCaller() override { Shutdown(); }

  void KeepOnly(const absl::flat_hash_set<std::string>& addresses) override PAWL_EXCLUDES(mu_);
  void Call(const std::string& address, const std::string& rpc,
            const google::protobuf::Message& request, MonotonicDuration timeout,
            std::shared_ptr<google::protobuf::Message> response, Done done) override
      PAWL_EXCLUDES(mu_);
  // The number of channels. For tests.
  size_t servers() const PAWL_EXCLUDES(mu_);

  // Cancels every call and waits until the last `done` has run. Later calls answer UNAVAILABLE at
  // once.
  void Shutdown() PAWL_EXCLUDES(mu_);

 private:
  // Takes messages of all types.
  using Stub = grpc::TemplatedGenericStub<google::protobuf::Message, google::protobuf::Message>;
  struct Server {
    std::unique_ptr<Stub> stub;
    // Calls in progress.
    size_t calls = 0;
  };

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  mutable Mutex mu_;
  CondVar idle_;
  bool shut_down_ PAWL_GUARDED_BY(mu_) = false;
  // By address. A server stays while it has calls.
  std::map<std::string, Server> servers_ PAWL_GUARDED_BY(mu_);
  // The calls in progress, to cancel them.
  std::set<grpc::ClientContext*> contexts_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_GRPC_SERVER_CALLER_H_
