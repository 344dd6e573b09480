// Calls to an etcd cluster over its gRPC API.
#ifndef PAWL_SCHEDULER_STORE_ETCD_CLIENT_H_
#define PAWL_SCHEDULER_STORE_ETCD_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "scheduler/store/etcd.pb.h"

namespace pawl {

// The largest response. EtcdStore's chunks are a quarter of it.
inline constexpr int kMaxEtcdResponseBytes = 4 << 20;
// Connections are closed after this time without a call. A load balancer may drop an idle one
// silently; the next call over it would wait for the whole attempt timeout.
inline constexpr std::chrono::milliseconds kEtcdIdleTimeout{60000};

struct EtcdClientOptions {
  // "HOST:PORT", at least one.
  std::vector<std::string> endpoints;
  // A folder with the authorities of etcd's certificates (ca.pem) and a certificate that etcd
  // accepts (cert.pem, key.pem), read for each connection. Empty: connections are neither encrypted
  // nor authenticated.
  std::string tls_dir = {};
  // The client leaves an endpoint that does not answer within this time.
  std::chrono::milliseconds attempt_timeout{2000};
  // gRPC raises a time below one second to one second.
  std::chrono::milliseconds idle_timeout = kEtcdIdleTimeout;
};

// OK if EtcdClientOptions::tls_dir is empty or its files can be read.
absl::Status CheckEtcdTlsDir(const std::string& tls_dir);

// Sends each call to one endpoint after the other until one answers, starting with the one that
// answered last. Each endpoint gets the call at most once. So a call may be executed more than
// once, and a failed call may have been executed: callers must make their calls idempotent. Not
// thread-safe.
//
// Errors of all calls:
//   INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, RESOURCE_EXHAUSTED: etcd's own, at once.
//   PERMISSION_DENIED, UNAUTHENTICATED, UNIMPLEMENTED (it does not speak etcd's v3 API), INTERNAL
//     (another error of etcd): every endpoint has refused; this is the last one's error.
//   UNAVAILABLE: no endpoint has served the call before `deadline`, and some have not answered; the
//     message says why for each.
class EtcdClient {
 public:
  explicit EtcdClient(EtcdClientOptions options);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    MonotonicTime deadline);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                MonotonicTime deadline);
  absl::StatusOr<etcdserverpb::LeaseGrantResponse> GrantLease(std::chrono::seconds ttl,
                                                              MonotonicTime deadline);
  // Returns the time for which the lease is renewed; 0 if it has expired.
  absl::StatusOr<std::chrono::seconds> RenewLease(int64_t lease, MonotonicTime deadline);
  absl::Status RevokeLease(int64_t lease, MonotonicTime deadline);

 private:
  struct Connection;
  using Attempt = std::function<grpc::Status(Connection&, grpc::ClientContext&)>;

  absl::Status Call(const char* name, MonotonicTime deadline, const Attempt& attempt);

  const EtcdClientOptions options_;
  size_t current_ = 0;
  // To options_.endpoints[current_]; null if there is none.
  std::unique_ptr<Connection> connection_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_ETCD_CLIENT_H_
