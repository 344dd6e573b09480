#include "client_lib/security/admission/quota_interceptor.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/security/admission/admitted_call.h"
#include "client_lib/security/admission/connection_ledger.h"
#include "client_lib/security/admission/remote_address.h"
#include "google/protobuf/message.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_interceptor.h"

namespace pawl {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// How the methods of Pawl's own services begin.
constexpr absl::string_view kPawlMethods = "/pawl.";
// The pause that a refused peer is asked for.
constexpr std::chrono::milliseconds kPushback{1000};
// How often the thread looks without being woken.
constexpr std::chrono::seconds kIdleInterval{1};

MonotonicTime Now() { return Clock::Real().Now(); }

absl::Status OverLimit() {
  absl::Status status = absl::ResourceExhaustedError(
      "this host has too many calls in progress, or sent too many that were refused");
  status.SetPayload(kPushbackPayloadUrl, absl::Cord(absl::StrCat(kPushback.count())));
  return status;
}

// Whether the call was refused for its content or its sender. The other errors are part of normal
// operation: a routing table that changes, a server that starts.
bool IsRefusal(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    default:
      return false;
  }
}

// Whether the service receives its requests as bytes (server/data_plane/raw_service.h).
bool IsRaw(const ServerRpcInfo& info) {
  const absl::string_view method = info.method();
  return info.type() == ServerRpcInfo::Type::UNARY &&
         (absl::StartsWith(method, "/pawl.Parameter/") ||
          absl::StartsWith(method, "/pawl.Replication/"));
}

// Whether the call ended before its message arrived. gRPC then gives a service that receives bytes
// none, and other services no message; an empty message is one.
bool IsAbandoned(const ServerRpcInfo& info, InterceptorBatchMethods* methods) {
  if (info.type() != ServerRpcInfo::Type::UNARY) return false;
  if (!methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE))
    return IsRaw(info);
  const void* const message = methods->GetRecvMessage();
  return message == nullptr ||
         (IsRaw(info) && !static_cast<const grpc::ByteBuffer*>(message)->Valid());
}

// The size of the request, as its service receives it.
uint64_t RequestBytes(const ServerRpcInfo& info, const void* message) {
  if (message == nullptr || info.type() != ServerRpcInfo::Type::UNARY) return 0;
  if (IsRaw(info)) {
    const auto& bytes = *static_cast<const grpc::ByteBuffer*>(message);
    return bytes.Valid() ? bytes.Length() : 0;
  }
  if (!absl::StartsWith(info.method(), kPawlMethods)) return 0;
  return static_cast<const google::protobuf::Message*>(message)->ByteSizeLong();
}

std::vector<std::string> UrisOf(const grpc::ServerContextBase& context) {
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : context.auth_context()->FindPropertyValues("peer_uri"))
    uris.emplace_back(uri.data(), uri.size());
  return uris;
}

}  // namespace

class QuotaEnforcer::Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(QuotaEnforcer& enforcer, ServerRpcInfo& info) : enforcer_(enforcer), info_(info) {
    call_.cost = CostOf(info.method());
    call_.interceptor = this;
  }
  ~Interceptor() override {
    PeerQuotas& quotas = *enforcer_.quotas_;
    quotas.End(call_, Now());
    if (quotas.HasWaiting()) enforcer_.Wake();
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (!began_ &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      began_ = true;
      Begin(methods);
      return;
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS) &&
        IsRefusal(methods->GetSendStatus())) {
      enforcer_.quotas_->OnRefused(call_, Now());
    }
    methods->Proceed();
  }

  // Lets the handler run.
  void Continue() { methods_->Proceed(); }

 private:
  struct CallOfInterceptor : PeerQuotas::Call {
    Interceptor* interceptor = nullptr;
  };

  void Begin(InterceptorBatchMethods* methods) {
    methods_ = methods;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE))
      call_.bytes = RequestBytes(info_, methods->GetRecvMessage());
    const grpc::ServerContextBase& context = *info_.server_context();
    const RemoteAddress remote = RemoteAddressOfPeer(context.peer());
    // Once the call waits, the other thread may end it, and this with it.
    QuotaEnforcer& enforcer = enforcer_;
    const bool is_abandoned = IsAbandoned(info_, methods);
    if (is_abandoned) {
      enforcer.ledger_.OnAbandoned(remote.connection);
    } else {
      enforcer.ledger_.OnAdmitted(remote.connection, call_.bytes);
    }
    if (enforcer.stopped_) {
      methods->Proceed();
      return;
    }
    const std::string peer = PeerName(UrisOf(context), remote.host);
    // The handler of an abandoned call does nothing.
    switch (is_abandoned ? enforcer.quotas_->OnAbandoned(peer, Now())
                         : enforcer.quotas_->Begin(peer, call_, Now())) {
      case PeerQuotas::Verdict::kRun:
        break;
      case PeerQuotas::Verdict::kWait:
        enforcer.Wake();
        return;
      case PeerQuotas::Verdict::kRefuseAndClose:
        if (enforcer.ledger_.OnDebt(remote.connection, Now())) enforcer.close_(remote.connection);
        [[fallthrough]];
      case PeerQuotas::Verdict::kRefuse:
        if (auto* const admitted = dynamic_cast<AdmittedCallContext*>(info_.server_context()))
          admitted->refusal = OverLimit();
        // gRPC's services, health and reflection, do not ask for the refusal.
        if (!absl::StartsWith(info_.method(), kPawlMethods)) info_.server_context()->TryCancel();
        break;
    }
    methods->Proceed();
  }

  QuotaEnforcer& enforcer_;
  ServerRpcInfo& info_;
  CallOfInterceptor call_;
  bool began_ = false;
  InterceptorBatchMethods* methods_ = nullptr;

  friend class QuotaEnforcer;
};

class QuotaEnforcer::Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(QuotaEnforcer& enforcer) : enforcer_(enforcer) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new Interceptor(enforcer_, *info);
  }

 private:
  QuotaEnforcer& enforcer_;
};

namespace {

class ContextAllocator final : public grpc::ContextAllocator {
 public:
  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return new AdmittedCallContext;
  }
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override {
    return new grpc::GenericCallbackServerContext;
  }
  void Release(grpc::CallbackServerContext* context) override { delete context; }
  void Release(grpc::GenericCallbackServerContext* context) override { delete context; }
};

}  // namespace

QuotaEnforcer::QuotaEnforcer(std::shared_ptr<PeerQuotas> quotas, ConnectionLedger& ledger,
                             CloseConnection close)
    : quotas_(std::move(quotas)),
      ledger_(ledger),
      close_(std::move(close)),
      thread_([this] { Run(); }) {}

QuotaEnforcer::~QuotaEnforcer() { Stop(); }

void QuotaEnforcer::AddTo(grpc::ServerBuilder& builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>(*this));
  builder.experimental().SetInterceptorCreators(std::move(factories));
  builder.SetContextAllocator(std::make_unique<ContextAllocator>());
}

void QuotaEnforcer::Wake() {
  // The thread may have looked for the last time.
  if (stopped_) return Continue(quotas_->TakeAll());
  MutexLock lock(mu_);
  woken_ = true;
  wake_.NotifyAll();
}

void QuotaEnforcer::Continue(const std::vector<PeerQuotas::Call*>& calls) {
  for (PeerQuotas::Call* const call : calls)
    static_cast<Interceptor::CallOfInterceptor*>(call)->interceptor->Continue();
}

void QuotaEnforcer::Stop() {
  stopped_ = true;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void QuotaEnforcer::Run() {
  for (bool last = false; !last;) {
    const MonotonicTime now = Now();
    const std::optional<MonotonicTime> next =
        quotas_->HasWaiting() ? quotas_->NextReady(now) : std::nullopt;
    {
      MutexLock lock(mu_);
      const MonotonicTime until = std::min(next.value_or(now + kIdleInterval), now + kIdleInterval);
      while (!woken_ && !stopping_ && wake_.WaitUntil(mu_, until)) {
      }
      woken_ = false;
      last = stopping_;
    }
    if (quotas_->HasWaiting()) Continue(last ? quotas_->TakeAll() : quotas_->TakeReady(Now()));
  }
}

}  // namespace pawl
