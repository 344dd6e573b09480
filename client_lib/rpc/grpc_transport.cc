#include "client_lib/rpc/grpc_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc_settings.h"
#include "grpcpp/create_channel.h"

namespace pawl {
namespace {

std::shared_ptr<grpc::GenericStub> Connect(const std::string& address,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                           ChannelKind kind) {
  return std::make_shared<grpc::GenericStub>(grpc::CreateCustomChannel(address, credentials, ChannelSettings(kind)));
}

const std::string& FullName(Method method) {
  static const std::string* const kPush = new std::string("/pawl.Parameter/Push");
  static const std::string* const kPull = new std::string("/pawl.Parameter/Pull");
  static const std::string* const kEndStep = new std::string("/pawl.Parameter/EndStep");
  switch (method) {
    case Method::kPush:
      return *kPush;
    case Method::kPull:
      return *kPull;
    case Method::kEndStep:
      break;
  }
  return *kEndStep;
}

}  // namespace

GrpcTransport::GrpcTransport(std::shared_ptr<grpc::ChannelCredentials> credentials)
    : credentials_(std::move(credentials)) {}

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
    if (it != connections_.end()) stub = method == Method::kPull ? it->second.pull : it->second.push;
  }
  if (stub == nullptr) {
    request.owner.reset();
    done(absl::ResourceExhaustedError(
             absl::StrCat("connections to ", kMaxServerAddresses, " servers, which is the limit; start anew")),
         IncomingMessage());
    return;
  }
  calls_.Start(std::move(stub), FullName(method), std::move(request), timeout, std::move(done));
}

void GrpcTransport::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  calls_.After(delay, std::move(action));
}

void GrpcTransport::Shutdown() { calls_.Shutdown(); }

GrpcControlChannel::GrpcControlChannel(const std::string& address,
                                       std::shared_ptr<grpc::ChannelCredentials> credentials)
    : stub_(Connect(address, credentials, ChannelKind::kControl)) {}

void GrpcControlChannel::Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
                              Transport::Done done) {
  calls_.Start(stub_, method, std::move(request), timeout, std::move(done));
}

void GrpcControlChannel::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  calls_.After(delay, std::move(action));
}

void GrpcControlChannel::Shutdown() { calls_.Shutdown(); }

}  // namespace pawl
