#include "client_lib/rpc/grpc/grpc_transport.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/create_channel.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

std::shared_ptr<grpc::GenericStub> Connect(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    ChannelKind kind) {
  return std::make_shared<grpc::GenericStub>(
      grpc::CreateCustomChannel(address, credentials, ChannelSettings(kind)));
}

}  // namespace

GrpcTransport::GrpcTransport(std::shared_ptr<grpc::ChannelCredentials> credentials)
    : credentials_(std::move(credentials)) {}

GrpcTransport::~GrpcTransport() {
  Shutdown();
  calls_.WaitForRpcs();
  // Closes the connections, which releases the memory that they borrow.
  MutexLock lock(mu_);
  closing_ = true;
  connections_.clear();
  abandoned_.clear();
}

void GrpcTransport::Call(const std::string& address, Method method, OutgoingMessage request,
                         MonotonicDuration timeout, Done done) {
  std::shared_ptr<grpc::GenericStub> stub;
  {
    MutexLock lock(mu_);
    auto it = connections_.find(address);
    if (it == connections_.end() && connections_.size() < kMaxServerAddresses) {
      it = connections_
               .emplace(address, Connections{Connect(address, credentials_, ChannelKind::kBulk),
                                             Connect(address, credentials_, ChannelKind::kBulk)})
               .first;
    }
    if (it != connections_.end())
      stub = method == Method::kPull ? it->second.pull : it->second.push;
  }
  if (stub == nullptr) {
    request.owner.reset();
    done(absl::ResourceExhaustedError(
             absl::StrCat("connections to ", kMaxServerAddresses,
                          " servers, which is the limit; restart the client")),
         IncomingMessage());
    return;
  }
  std::weak_ptr<grpc::GenericStub> used = stub;
  calls_.Start(std::move(stub), address, FullName(method), std::move(request), timeout,
               std::move(done), [this, address, used = std::move(used)] {
                 if (const std::shared_ptr<grpc::GenericStub> still_there = used.lock())
                   Abandon(address, still_there);
               });
}

void GrpcTransport::Abandon(const std::string& address,
                            const std::shared_ptr<grpc::GenericStub>& stub) {
  {
    MutexLock lock(mu_);
    const auto it = connections_.find(address);
    if (it == connections_.end() || (it->second.push != stub && it->second.pull != stub)) return;
    spdlog::warn("the connection to {} is stalled; making a new one", address);
    std::shared_ptr<grpc::GenericStub>& place =
        it->second.push == stub ? it->second.push : it->second.pull;
    abandoned_.push_back(std::exchange(place, Connect(address, credentials_, ChannelKind::kBulk)));
  }
  CloseAbandonedAfter(kMaxBorrowAfterRpc);
}

void GrpcTransport::CloseAbandonedAfter(MonotonicDuration delay) {
  calls_.After(delay, [this, delay] {
    if (!CloseAbandoned() || shut_down_.load()) return;
    CloseAbandonedAfter(std::min<MonotonicDuration>(2 * delay, kMaxBorrowAfterRpc));
  });
}

bool GrpcTransport::CloseAbandoned() {
  std::vector<std::shared_ptr<grpc::GenericStub>> unused;
  MutexLock lock(mu_);
  for (size_t i = 0; i < abandoned_.size();) {
    if (abandoned_[i].use_count() == 1) {
      unused.push_back(std::move(abandoned_[i]));
      abandoned_.erase(abandoned_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return !abandoned_.empty();
}

void GrpcTransport::Forget(const std::string& address) {
  Connections forgotten;
  {
    MutexLock lock(mu_);
    const auto it = connections_.find(address);
    if (it != connections_.end()) {
      forgotten = std::move(it->second);
      connections_.erase(it);
    }
  }
  // On another thread: gRPC may run the callbacks of calls while it cancels them.
  calls_.CancelAndThen(address, [this, forgotten = std::move(forgotten)]() mutable {
    {
      // Only now, so that the thread that cancels never has the last reference to the channel.
      MutexLock lock(mu_);
      if (forgotten.push == nullptr || closing_) return;
      abandoned_.push_back(std::move(forgotten.push));
      abandoned_.push_back(std::move(forgotten.pull));
    }
    CloseAbandonedAfter(kCloseForgottenAfter);
  });
}

void GrpcTransport::CancelCalls(const std::string& address) { calls_.Cancel(address); }

void GrpcTransport::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  calls_.After(delay, std::move(action));
}

void GrpcTransport::Shutdown() {
  shut_down_ = true;
  calls_.Shutdown();
}

}  // namespace pawl
