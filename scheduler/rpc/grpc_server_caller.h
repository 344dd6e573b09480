// Calls servers by gRPC.
#ifndef PAWL_SCHEDULER_RPC_GRPC_SERVER_CALLER_H_
#define PAWL_SCHEDULER_RPC_GRPC_SERVER_CALLER_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "client_lib/base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/security/credentials.h"
#include "proto/server_control.grpc.pb.h"
#include "scheduler/rpc/server_caller.h"

namespace pawl {

// Has one channel for each server until KeepOnly drops it: kMaxServers bounds the servers that are
// present, but not those of a job's whole duration. Thread-safe.
class GrpcServerCaller final : public ServerCaller {
 public:
  explicit GrpcServerCaller(std::shared_ptr<grpc::ChannelCredentials> credentials)
      : credentials_(std::move(credentials)) {}
  ~GrpcServerCaller() override { Shutdown(); }

  void CreateTable(const std::string& address, const CreateTableOnServerRequest& request,
                   MonotonicDuration timeout, Done done) override;
  void Inspect(const std::string& address, const InspectRequest& request, MonotonicDuration timeout,
               InspectDone done) override;
  void KeepBest(const std::string& address, const KeepBestRequest& request,
                MonotonicDuration timeout, Done done) override;
  void RestoreBest(const std::string& address, const RestoreBestRequest& request,
                   MonotonicDuration timeout, Done done) override;
  void ReleaseLogicalWorker(const std::string& address, const ReleaseLogicalWorkerRequest& request,
                            MonotonicDuration timeout, Done done) override;
  void Checkpoint(const std::string& address, const CheckpointOnServerRequest& request,
                  MonotonicDuration timeout, CheckpointDone done) override;
  void LoadCheckpoint(const std::string& address, const LoadCheckpointRequest& request,
                      MonotonicDuration timeout, Done done) override;

  void KeepOnly(const absl::flat_hash_set<std::string>& addresses) override PAWL_EXCLUDES(mu_);
  // The number of channels. For tests.
  size_t servers() const PAWL_EXCLUDES(mu_);

  // Cancels every call and waits until the last `done` has run. Later calls answer UNAVAILABLE at
  // once.
  void Shutdown() PAWL_EXCLUDES(mu_);

 private:
  template <typename Request, typename Response>
  using AsyncMethod = void (ServerControl::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

  template <typename Request, typename Response>
  void Call(const std::string& address, AsyncMethod<Request, Response> method,
            const Request& request, MonotonicDuration timeout,
            absl::AnyInvocable<void(absl::StatusOr<Response>)> done) PAWL_EXCLUDES(mu_);

  struct Server {
    std::unique_ptr<ServerControl::Stub> stub;
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
