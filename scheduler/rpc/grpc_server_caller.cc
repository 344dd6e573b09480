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
struct InFlight {
  grpc::ClientContext context;
  std::unique_ptr<google::protobuf::Message> request;
  std::shared_ptr<google::protobuf::Message> response;
  ServerCaller::Done done;
};

}  // namespace

void GrpcServerCaller::Call(const std::string& address, const std::string& rpc,
                            const google::protobuf::Message& request, MonotonicDuration timeout,
                            std::shared_ptr<google::protobuf::Message> response, Done done) {
  auto call = std::make_shared<InFlight>();
  SetDeadline(call->context, timeout);
  call->request.reset(request.New());
  call->request->CopyFrom(request);
  call->response = std::move(response);
  call->done = std::move(done);
  Stub* stub = nullptr;
  {
    MutexLock lock(mu_);
    if (!shut_down_) {
      Server& server = servers_[address];
      if (server.stub == nullptr) {
        server.stub = std::make_unique<Stub>(grpc::CreateCustomChannel(
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
  stub->UnaryCall(
      &call->context, "/pawl.ServerControl/" + rpc, grpc::StubOptions(), call->request.get(),
      call->response.get(), [this, call, address](const grpc::Status& status) mutable {
        call->done(status.ok() ? absl::OkStatus() : FromGrpcStatus(status, &call->context));
        // The context refers to the channel, whose last reference must not be dropped on a gRPC
        // thread: Shutdown waits for this.
        grpc::ClientContext* const context = &call->context;
        call.reset();
        MutexLock lock(mu_);
        contexts_.erase(context);
        --servers_[address].calls;
        idle_.NotifyAll();
      });
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
