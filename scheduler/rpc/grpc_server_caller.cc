#include "scheduler/rpc/grpc_server_caller.h"

#include <chrono>
#include <utility>
#include <vector>

#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace pawl {
namespace {

// The state of a call until its answer arrives.
template <typename Request, typename Response>
struct InFlight {
  grpc::ClientContext context;
  Request request;
  Response response;
  absl::AnyInvocable<void(absl::StatusOr<Response>)> done;
};

template <typename Response>
absl::AnyInvocable<void(absl::StatusOr<Response>)> StatusOnly(ServerCaller::Done done) {
  return
      [done = std::move(done)](absl::StatusOr<Response> answer) mutable { done(answer.status()); };
}

}  // namespace

template <typename Request, typename Response>
void GrpcServerCaller::Call(const std::string& address, AsyncMethod<Request, Response> method,
                            const Request& request, MonotonicDuration timeout,
                            absl::AnyInvocable<void(absl::StatusOr<Response>)> done) {
  auto call = std::make_shared<InFlight<Request, Response>>();
  SetDeadline(call->context, timeout);
  call->request = request;
  call->done = std::move(done);
  ServerControl::Stub* stub = nullptr;
  {
    MutexLock lock(mu_);
    if (!shut_down_) {
      Server& server = servers_[address];
      if (server.stub == nullptr) {
        server.stub = ServerControl::NewStub(grpc::CreateCustomChannel(
            address, credentials_, ChannelSettings(ChannelKind::kControl)));
      }
      ++server.calls;
      stub = server.stub.get();
      contexts_.insert(&call->context);
    }
  }
  if (stub == nullptr) {
    call->done(absl::UnavailableError("the scheduler is ending"));
    return;
  }
  (stub->async()->*method)(&call->context, &call->request, &call->response,
                           [this, call, address](const grpc::Status& status) mutable {
                             if (status.ok()) {
                               call->done(std::move(call->response));
                             } else {
                               call->done(FromGrpcStatus(status, &call->context));
                             }
                             // The context refers to the channel, whose last reference must not be
                             // dropped on a gRPC thread: Shutdown waits for this.
                             grpc::ClientContext* const context = &call->context;
                             call.reset();
                             MutexLock lock(mu_);
                             contexts_.erase(context);
                             --servers_[address].calls;
                             idle_.NotifyAll();
                           });
}

void GrpcServerCaller::CreateTable(const std::string& address,
                                   const CreateTableOnServerRequest& request,
                                   MonotonicDuration timeout, Done done) {
  Call<CreateTableOnServerRequest, CreateTableOnServerResponse>(
      address, &ServerControl::StubInterface::async_interface::CreateTable, request, timeout,
      StatusOnly<CreateTableOnServerResponse>(std::move(done)));
}

void GrpcServerCaller::Inspect(const std::string& address, const InspectRequest& request,
                               MonotonicDuration timeout, InspectDone done) {
  Call<InspectRequest, InspectResponse>(address,
                                        &ServerControl::StubInterface::async_interface::Inspect,
                                        request, timeout, std::move(done));
}

void GrpcServerCaller::KeepBest(const std::string& address, const KeepBestRequest& request,
                                MonotonicDuration timeout, Done done) {
  Call<KeepBestRequest, KeepBestResponse>(
      address, &ServerControl::StubInterface::async_interface::KeepBest, request, timeout,
      StatusOnly<KeepBestResponse>(std::move(done)));
}

void GrpcServerCaller::RestoreBest(const std::string& address, const RestoreBestRequest& request,
                                   MonotonicDuration timeout, Done done) {
  Call<RestoreBestRequest, RestoreBestResponse>(
      address, &ServerControl::StubInterface::async_interface::RestoreBest, request, timeout,
      StatusOnly<RestoreBestResponse>(std::move(done)));
}

void GrpcServerCaller::ReleaseLogicalWorker(const std::string& address,
                                            const ReleaseLogicalWorkerRequest& request,
                                            MonotonicDuration timeout, Done done) {
  Call<ReleaseLogicalWorkerRequest, ReleaseLogicalWorkerResponse>(
      address, &ServerControl::StubInterface::async_interface::ReleaseLogicalWorker, request,
      timeout, StatusOnly<ReleaseLogicalWorkerResponse>(std::move(done)));
}

void GrpcServerCaller::Checkpoint(const std::string& address,
                                  const CheckpointOnServerRequest& request,
                                  MonotonicDuration timeout, CheckpointDone done) {
  Call<CheckpointOnServerRequest, CheckpointOnServerResponse>(
      address, &ServerControl::StubInterface::async_interface::Checkpoint, request, timeout,
      std::move(done));
}

void GrpcServerCaller::LoadCheckpoint(const std::string& address,
                                      const LoadCheckpointRequest& request,
                                      MonotonicDuration timeout, Done done) {
  Call<LoadCheckpointRequest, LoadCheckpointResponse>(
      address, &ServerControl::StubInterface::async_interface::LoadCheckpoint, request, timeout,
      StatusOnly<LoadCheckpointResponse>(std::move(done)));
}

void GrpcServerCaller::KeepOnly(const absl::flat_hash_set<std::string>& addresses) {
  // Destroyed without the lock.
  std::vector<Server> gone;
  MutexLock lock(mu_);
  for (auto it = servers_.begin(); it != servers_.end();) {
    // The call's context refers to the channel too, and would drop it last, on a gRPC thread.
    if (addresses.contains(it->first) || it->second.calls > 0) {
      ++it;
    } else {
      gone.push_back(std::move(it->second));
      it = servers_.erase(it);
    }
  }
}

size_t GrpcServerCaller::servers() const {
  MutexLock lock(mu_);
  return servers_.size();
}

void GrpcServerCaller::Shutdown() {
  MutexLock lock(mu_);
  shut_down_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  while (!contexts_.empty())
    idle_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(1));
}

}  // namespace pawl
