#include "scheduler/store/etcd_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/env.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "scheduler/store/etcd.grpc.pb.h"

namespace pawl {
namespace {

using etcdserverpb::LeaseGrantRequest;
using etcdserverpb::LeaseGrantResponse;
using etcdserverpb::LeaseKeepAliveRequest;
using etcdserverpb::LeaseKeepAliveResponse;
using etcdserverpb::LeaseRevokeRequest;
using etcdserverpb::LeaseRevokeResponse;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

// A host that does not answer a SYN must not use up the time of the endpoints after it.
constexpr int kConnectTimeoutMs = 1000;
constexpr uint64_t kMaxTlsFileBytes = uint64_t{1} << 20;

// Without keepalive: etcd closes connections that ping more often than it allows, and every call
// has a deadline.
std::shared_ptr<grpc::Channel> Connect(
    const std::string& endpoint, std::chrono::milliseconds idle_timeout,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  // Despite its name, the time limit of one attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, static_cast<int>(idle_timeout.count()));
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A proxy of the environment is for the world outside the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A new channel gets a new connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxEtcdResponseBytes);
  return grpc::CreateCustomChannel(endpoint, credentials, arguments);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const std::string& tls_dir) {
  if (tls_dir.empty()) return grpc::InsecureChannelCredentials();
  const auto read = [&](const char* name) {
    return ReadWholeFile(Env::Real(), JoinPath(tls_dir, name), kMaxTlsFileBytes);
  };
  grpc::SslCredentialsOptions options;
  PAWL_ASSIGN_OR_RETURN(options.pem_root_certs, read("ca.pem"));
  PAWL_ASSIGN_OR_RETURN(options.pem_cert_chain, read("cert.pem"));
  PAWL_ASSIGN_OR_RETURN(options.pem_private_key, read("key.pem"));
  return grpc::SslCredentials(options);
}

absl::Status ToStatus(const grpc::Status& status) {
  const std::string& message = status.error_message();
  switch (const auto code = static_cast<absl::StatusCode>(status.error_code()); code) {
    case absl::StatusCode::kOk:
      return absl::OkStatus();
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      return absl::UnavailableError(message);
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(absl::StrCat("this does not speak etcd's v3 API: ", message));
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnauthenticated:
      return absl::Status(code, message);
    default:
      // ABORTED and FAILED_PRECONDITION have other meanings in StateStore.
      return absl::InternalError(message);
  }
}

// Whether every member of the cluster would answer with this error. Others may be of this member
// alone: a learner, one with other authorities, or a proxy before it.
bool IsOfCluster(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsOutOfRange(status) || absl::IsResourceExhausted(status);
}

}  // namespace

struct EtcdClient::Connection {
  explicit Connection(std::shared_ptr<grpc::Channel> connected)
      : channel(std::move(connected)), kv(channel), lease(channel) {}

  const std::shared_ptr<grpc::Channel> channel;
  etcdserverpb::KV::Stub kv;
  etcdserverpb::Lease::Stub lease;
};

absl::Status CheckEtcdTlsDir(const std::string& tls_dir) { return Credentials(tls_dir).status(); }

EtcdClient::EtcdClient(EtcdClientOptions options) : options_(std::move(options)) {}

EtcdClient::~EtcdClient() = default;

absl::Status EtcdClient::Call(const char* name, MonotonicTime deadline, const Attempt& attempt) {
  std::vector<std::string> failures;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  bool all_refuse = true;
  for (size_t tried = 0; tried < options_.endpoints.size(); ++tried) {
    const std::string& endpoint = options_.endpoints[current_];
    const MonotonicDuration left = deadline - Clock::Real().Now();
    if (left <= MonotonicDuration::zero()) {
      failures.push_back(absl::StrCat(endpoint, ": no time left"));
      all_refuse = false;
      break;
    }
    if (connection_ == nullptr) {
      const auto credentials = Credentials(options_.tls_dir);
      // The files may be about to be replaced.
      if (!credentials.ok()) return absl::UnavailableError(credentials.status().message());
      connection_ =
          std::make_unique<Connection>(Connect(endpoint, options_.idle_timeout, *credentials));
    }
    grpc::ClientContext context;
    SetDeadline(context, std::min<MonotonicDuration>(left, options_.attempt_timeout));
    const absl::Status status = ToStatus(attempt(*connection_, context));
    if (status.ok()) return status;
    if (IsOfCluster(status))
      return Annotate(status, absl::StrCat("etcd at ", endpoint, ", ", name));
    code = status.code();
    all_refuse = all_refuse && !absl::IsUnavailable(status);
    failures.push_back(absl::StrCat(endpoint, ": ", status.message()));
    // The next call to this endpoint connects again, without gRPC's backoff.
    connection_.reset();
    current_ = (current_ + 1) % options_.endpoints.size();
  }
  // A member that is away now may not refuse.
  return absl::Status(
      all_refuse ? code : absl::StatusCode::kUnavailable,
      absl::StrCat("no etcd endpoint answers ", name, ": ", absl::StrJoin(failures, "; ")));
}

absl::StatusOr<RangeResponse> EtcdClient::Range(const RangeRequest& request,
                                                MonotonicTime deadline) {
  RangeResponse response;
  PAWL_RETURN_IF_ERROR(
      Call("Range", deadline, [&](Connection& connection, grpc::ClientContext& context) {
        return connection.kv.Range(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<TxnResponse> EtcdClient::Txn(const TxnRequest& request, MonotonicTime deadline) {
  TxnResponse response;
  PAWL_RETURN_IF_ERROR(
      Call("Txn", deadline, [&](Connection& connection, grpc::ClientContext& context) {
        return connection.kv.Txn(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<LeaseGrantResponse> EtcdClient::GrantLease(std::chrono::seconds ttl,
                                                          MonotonicTime deadline) {
  LeaseGrantRequest request;
  request.set_ttl(ttl.count());
  LeaseGrantResponse response;
  PAWL_RETURN_IF_ERROR(
      Call("LeaseGrant", deadline, [&](Connection& connection, grpc::ClientContext& context) {
        return connection.lease.LeaseGrant(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<std::chrono::seconds> EtcdClient::RenewLease(int64_t lease, MonotonicTime deadline) {
  LeaseKeepAliveRequest request;
  request.set_id(lease);
  LeaseKeepAliveResponse response;
  PAWL_RETURN_IF_ERROR(
      Call("LeaseKeepAlive", deadline, [&](Connection& connection, grpc::ClientContext& context) {
        const auto stream = connection.lease.LeaseKeepAlive(&context);
        // A failed Write or Read shows in Finish.
        const bool answered = stream->Write(request) && stream->Read(&response);
        stream->WritesDone();
        if (answered) context.TryCancel();
        const grpc::Status status = stream->Finish();
        if (answered) return grpc::Status::OK;
        if (!status.ok()) return status;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream ended without a response");
      }));
  return std::chrono::seconds(response.ttl());
}

absl::Status EtcdClient::RevokeLease(int64_t lease, MonotonicTime deadline) {
  LeaseRevokeRequest request;
  request.set_id(lease);
  LeaseRevokeResponse response;
  return Call("LeaseRevoke", deadline, [&](Connection& connection, grpc::ClientContext& context) {
    return connection.lease.LeaseRevoke(&context, request, &response);
  });
}

}  // namespace pawl
