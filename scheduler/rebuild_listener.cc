#include "scheduler/rebuild_listener.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc_settings.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "scheduler/membership.h"
#include "scheduler/registration_check.h"

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kShutdownGrace{200};

template <typename Message>
bool Parse(grpc::ByteBuffer& bytes, Message& message) {
  return bytes.Valid() && grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok();
}

grpc::Status Rebuilding() { return {grpc::StatusCode::UNAVAILABLE, "the scheduler rebuilds its state from the servers"}; }

}  // namespace

// One call. Destroys itself.
class RebuildListener::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(RebuildListener& listener, std::string method) : listener_(listener), method_(std::move(method)) {
    StartRead(&request_);
  }
  void OnReadDone(bool) override { Finish(listener_.Answer(method_, request_)); }
  void OnDone() override { delete this; }

 private:
  RebuildListener& listener_;
  const std::string method_;
  grpc::ByteBuffer request_;
};

absl::StatusOr<std::unique_ptr<RebuildListener>> RebuildListener::Listen(const HostPort& address, size_t max_bytes) {
  std::unique_ptr<RebuildListener> listener(new RebuildListener(max_bytes));
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  builder.AddListeningPort(absl::StrCat(address.host, ":", address.port), grpc::InsecureServerCredentials(),
                           &listener->port_);
  builder.RegisterCallbackGenericService(listener.get());
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || listener->port_ == 0) {
    return absl::FailedPreconditionError("cannot listen there; is the port taken, or the host another machine's?");
  }
  return listener;
}

RebuildListener::~RebuildListener() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  server_->Wait();
}

std::vector<RegisterRequest> RebuildListener::Heard() const {
  MutexLock lock(mu_);
  std::vector<RegisterRequest> heard;
  for (const auto& [node, registration] : heard_) heard.push_back(registration.request);
  return heard;
}

grpc::ServerGenericBidiReactor* RebuildListener::CreateReactor(grpc::GenericCallbackServerContext* context) {
  return new Call(*this, context->method());
}

grpc::Status RebuildListener::Answer(const std::string& method, grpc::ByteBuffer& bytes) {
  if (HeartbeatRequest heartbeat;
      method == "/pawl.Scheduler/Heartbeat" && Parse(bytes, heartbeat) && heartbeat.has_server()) {
    return {grpc::StatusCode::ABORTED, "the scheduler has lost its state; register again"};
  }
  if (RegisterRequest request; method == "/pawl.Scheduler/Register" && Parse(bytes, request)) {
    const bool is_node = request.role() == SERVER_ROLE && !request.node().empty() && CheckRegistration(request).ok();
    if (is_node) return Hear(std::move(request));
  }
  return Rebuilding();
}

grpc::Status RebuildListener::Hear(RegisterRequest request) {
  const size_t bytes = request.SpaceUsedLong();
  MutexLock lock(mu_);
  const auto before = heard_.find(request.node());
  if (before == heard_.end() && heard_.size() == kMaxServers) return Rebuilding();
  const size_t others = heard_bytes_ - (before == heard_.end() ? 0 : before->second.bytes);
  if (bytes > max_bytes_ - others) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, absl::StrCat("the scheduler rebuilds its state, and holds ", others,
                                                               " bytes of other servers' registrations; with ", bytes,
                                                               " more it would have more than the limit of ", max_bytes_)};
  }
  heard_bytes_ = others + bytes;
  const std::string node = request.node();
  heard_[node] = {std::move(request), bytes};
  return Rebuilding();
}

}  // namespace pawl
