#include "scheduler/startup/rebuild_listener.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/method_roles.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "scheduler/rpc/caller_check.h"

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kShutdownGrace{200};

template <typename Message>
bool Parse(grpc::ByteBuffer& bytes, Message& message) {
  return bytes.Valid() && grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok();
}

}  // namespace

// One call. Destroys itself.
class RebuildListener::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(RebuildListener& listener, const grpc::GenericCallbackServerContext& context)
      : listener_(listener),
        method_(context.method()),
        address_(context.peer()),
        peer_(PeerOf(context)) {
    StartRead(&request_);
  }
  void OnReadDone(bool) override { Finish(listener_.Answer(method_, peer_, address_, request_)); }
  void OnDone() override { delete this; }

 private:
  RebuildListener& listener_;
  const std::string method_;
  const std::string address_;
  const std::optional<Peer> peer_;
  grpc::ByteBuffer request_;
};

absl::StatusOr<std::unique_ptr<RebuildListener>> RebuildListener::Listen(const HostPort& address,
                                                                         ListenerSecurity security,
                                                                         AuditLog* audit,
                                                                         size_t max_bytes) {
  std::unique_ptr<RebuildListener> listener(new RebuildListener(audit, max_bytes));
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  // The census limits what it keeps, and nothing waits.
  security.quotas = nullptr;
  listener->guard_ = std::make_unique<GuardedPort>(std::move(security));
  if (const absl::Status status =
          listener->guard_->Listen(builder, absl::StrCat(address.host, ":", address.port));
      !status.ok()) {
    return absl::FailedPreconditionError(status.message());
  }
  builder.RegisterCallbackGenericService(listener.get());
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) return absl::FailedPreconditionError("gRPC cannot serve there");
  listener->guard_->Start();
  return listener;
}

RebuildListener::~RebuildListener() {
  if (server_ == nullptr) return;
  guard_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  server_->Wait();
}

std::vector<RegisterRequest> RebuildListener::Registrations() const {
  MutexLock lock(mu_);
  return census_.Registrations();
}

grpc::ServerGenericBidiReactor* RebuildListener::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Call(*this, *context);
}

grpc::Status RebuildListener::Answer(const std::string& method, const std::optional<Peer>& peer,
                                     const std::string& address, grpc::ByteBuffer& bytes) {
  const auto answer = [&]() -> absl::Status {
    MutexLock lock(mu_);
    if (HeartbeatRequest heartbeat;
        method == "/pawl.Scheduler/Heartbeat" && Parse(bytes, heartbeat)) {
      return census_.OnHeartbeat(heartbeat);
    }
    if (RegisterRequest request; method == "/pawl.Scheduler/Register" && Parse(bytes, request)) {
      PAWL_RETURN_IF_ERROR(CheckRegistrationIsOf(peer, request));
      return census_.OnRegister(request);
    }
    return RebuildCensus::OnOtherCall();
  }();
  if (audit_ != nullptr && RolesOf(method) == RoleSet(PeerRole::kOperator)) {
    absl::string_view name = method;
    name.remove_prefix(name.rfind('/') + 1);
    audit_->Write({.who = peer.has_value() ? peer->Describe() : "",
                   .from = address,
                   .method = name,
                   .request = "",
                   .result = answer});
  }
  return ToGrpcStatus(answer);
}

}  // namespace pawl
