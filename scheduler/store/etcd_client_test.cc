#include "scheduler/store/etcd_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "scheduler/store/etcd.grpc.pb.h"
#include "scheduler/store/testing/silent_listener.h"

namespace pawl {
namespace {

using etcdserverpb::KV;
using etcdserverpb::Lease;
using etcdserverpb::LeaseKeepAliveRequest;
using etcdserverpb::LeaseKeepAliveResponse;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using std::chrono::milliseconds;

constexpr milliseconds kAttemptTimeout{5000};

MonotonicTime Soon() { return Clock::Real().Now() + std::chrono::seconds(20); }

// Answers every Range with one status, and every renewal with one number of seconds.
class FakeEtcd {
 public:
  explicit FakeEtcd(grpc::Status range, int64_t ttl = 0, size_t value_bytes = 1)
      : kv_(std::move(range), value_bytes), lease_(ttl) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&kv_);
    builder.RegisterService(&lease_);
    server_ = builder.BuildAndStart();
    endpoint_ = absl::StrCat("127.0.0.1:", port);
  }

  const std::string& endpoint() const { return endpoint_; }
  int requests() const { return kv_.requests; }
  // The client's addresses: one per connection.
  size_t connections() {
    const std::lock_guard<std::mutex> lock(kv_.mu);
    return kv_.peers.size();
  }

 private:
  struct FakeKv final : KV::Service {
    FakeKv(grpc::Status range_status, size_t bytes)
        : status(std::move(range_status)), value_bytes(bytes) {}
    grpc::Status Range(grpc::ServerContext* context, const RangeRequest* request,
                       RangeResponse* response) override {
      ++requests;
      const std::lock_guard<std::mutex> lock(mu);
      peers.insert(context->peer());
      etcdserverpb::KeyValue& pair = *response->add_kvs();
      pair.set_key(request->key());
      pair.set_value(std::string(value_bytes, 'v'));
      return status;
    }
    const grpc::Status status;
    const size_t value_bytes;
    std::atomic<int> requests{0};
    std::mutex mu;
    std::set<std::string> peers;
  };
  struct FakeLease final : Lease::Service {
    explicit FakeLease(int64_t seconds) : ttl(seconds) {}
    grpc::Status LeaseKeepAlive(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<LeaseKeepAliveResponse, LeaseKeepAliveRequest>* stream) override {
      LeaseKeepAliveRequest request;
      while (ttl >= 0 && stream->Read(&request)) {
        LeaseKeepAliveResponse response;
        response.set_id(request.id());
        response.set_ttl(ttl);
        stream->Write(response);
      }
      return grpc::Status::OK;
    }
    const int64_t ttl;
  };

  FakeKv kv_;
  FakeLease lease_;
  std::string endpoint_;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<RangeResponse> RangeFrom(std::vector<std::string> endpoints) {
  RangeRequest request;
  request.set_key("k");
  return EtcdClient({.endpoints = std::move(endpoints), .attempt_timeout = kAttemptTimeout})
      .Range(request, Soon());
}

TEST(EtcdClientTest, ResponseIsReturned) {
  const FakeEtcd etcd(grpc::Status::OK);
  const auto response = RangeFrom({etcd.endpoint()});
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->kvs_size(), 1);
  EXPECT_EQ(response->kvs(0).key(), "k");
}

TEST(EtcdClientTest, ErrorKeepsItsCodeAndMessage) {
  const struct {
    grpc::StatusCode sent;
    absl::StatusCode expected;
  } cases[] = {{grpc::StatusCode::INVALID_ARGUMENT, absl::StatusCode::kInvalidArgument},
               {grpc::StatusCode::DEADLINE_EXCEEDED, absl::StatusCode::kUnavailable},
               {grpc::StatusCode::NOT_FOUND, absl::StatusCode::kNotFound},
               {grpc::StatusCode::RESOURCE_EXHAUSTED, absl::StatusCode::kResourceExhausted},
               {grpc::StatusCode::UNIMPLEMENTED, absl::StatusCode::kUnimplemented},
               // StateStore gives these two other meanings.
               {grpc::StatusCode::FAILED_PRECONDITION, absl::StatusCode::kInternal},
               {grpc::StatusCode::ABORTED, absl::StatusCode::kInternal},
               {grpc::StatusCode::UNAVAILABLE, absl::StatusCode::kUnavailable},
               {grpc::StatusCode::UNAUTHENTICATED, absl::StatusCode::kUnauthenticated}};
  for (const auto& [sent, expected] : cases) {
    const FakeEtcd etcd(grpc::Status(sent, "words of etcd"));
    const auto response = RangeFrom({etcd.endpoint()});
    EXPECT_EQ(response.status().code(), expected) << response.status();
    EXPECT_TRUE(absl::StrContains(response.status().message(), "words of etcd"))
        << response.status();
  }
}

TEST(EtcdClientTest, ServerWithoutEtcdsServiceIsReported) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  // Only one of the two services.
  Lease::Service lease;
  builder.RegisterService(&lease);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto response = RangeFrom({absl::StrCat("127.0.0.1:", port)});
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnimplemented) << response.status();
  EXPECT_TRUE(absl::StrContains(response.status().message(), "does not speak etcd's v3 API"))
      << response.status();
}

TEST(EtcdClientTest, UnavailableEndpointIsLeftForTheNext) {
  const FakeEtcd good(grpc::Status::OK);
  const FakeEtcd bad(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no leader"));
  EtcdClient client(
      {.endpoints = {bad.endpoint(), good.endpoint()}, .attempt_timeout = kAttemptTimeout});
  for (int i = 0; i < 2; ++i) {
    const auto response = client.Range(RangeRequest(), Soon());
    ASSERT_TRUE(response.ok()) << response.status();
  }
  EXPECT_EQ(bad.requests(), 1) << "the client stays with the endpoint that answered";
  EXPECT_EQ(good.requests(), 2);
}

TEST(EtcdClientTest, ErrorOfEtcdIsNotRepeatedElsewhere) {
  const FakeEtcd refusing(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too large"));
  const FakeEtcd other(grpc::Status::OK);
  EXPECT_EQ(RangeFrom({refusing.endpoint(), other.endpoint()}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other.requests(), 0);
}

TEST(EtcdClientTest, ErrorOfOneMemberIsTriedElsewhere) {
  const FakeEtcd learner(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "a learner"));
  const FakeEtcd good(grpc::Status::OK);
  EtcdClient client(
      {.endpoints = {learner.endpoint(), good.endpoint()}, .attempt_timeout = kAttemptTimeout});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(client.Range(RangeRequest(), Soon()).ok());
  EXPECT_EQ(learner.requests(), 1);
  EXPECT_EQ(good.requests(), 2);
}

TEST(EtcdClientTest, RefusalOfEveryMemberKeepsItsCode) {
  const FakeEtcd refusing(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no such role"));
  const FakeEtcd also(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no such role"));
  EXPECT_EQ(RangeFrom({refusing.endpoint(), also.endpoint()}).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(RangeFrom({refusing.endpoint(), "127.0.0.1:1"}).status().code(),
            absl::StatusCode::kUnavailable)
      << "the member that is away may not refuse";
}

TEST(EtcdClientTest, OversizedResponseIsRefused) {
  const FakeEtcd etcd(grpc::Status::OK, 0, kMaxEtcdResponseBytes + 1);
  EXPECT_EQ(RangeFrom({etcd.endpoint()}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(EtcdClientTest, NothingIsSentAfterTheDeadline) {
  const FakeEtcd etcd(grpc::Status::OK);
  EtcdClient client({.endpoints = {etcd.endpoint()}, .attempt_timeout = kAttemptTimeout});
  const auto response = client.Range(RangeRequest(), Clock::Real().Now());
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnavailable) << response.status();
  EXPECT_EQ(etcd.requests(), 0);
}

TEST(EtcdClientTest, RenewalReturnsTimeToLive) {
  for (const int64_t ttl : {int64_t{0}, int64_t{7}}) {
    const FakeEtcd etcd(grpc::Status::OK, ttl);
    const auto renewed =
        EtcdClient({.endpoints = {etcd.endpoint()}, .attempt_timeout = kAttemptTimeout})
            .RenewLease(12, Soon());
    ASSERT_TRUE(renewed.ok()) << renewed.status();
    EXPECT_EQ(renewed->count(), ttl);
  }
}

TEST(EtcdClientTest, RenewalWithoutResponseIsUnavailable) {
  const FakeEtcd etcd(grpc::Status::OK, /*ttl=*/-1);
  EXPECT_EQ(EtcdClient({.endpoints = {etcd.endpoint()}, .attempt_timeout = kAttemptTimeout})
                .RenewLease(12, Soon())
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST(EtcdClientTest, IdleConnectionIsNotUsedAgain) {
  FakeEtcd etcd(grpc::Status::OK);
  // gRPC's minimum.
  constexpr std::chrono::seconds kIdle{1};
  EtcdClient client(
      {.endpoints = {etcd.endpoint()}, .attempt_timeout = kAttemptTimeout, .idle_timeout = kIdle});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(client.Range(RangeRequest(), Soon()).ok());
  EXPECT_EQ(etcd.connections(), 1u);
  // gRPC closes it after one to two times kIdle, or later on a busy machine.
  for (int pause = 3; pause <= 12 && etcd.connections() == 1; pause *= 2) {
    std::this_thread::sleep_for(pause * kIdle);
    ASSERT_TRUE(client.Range(RangeRequest(), Soon()).ok());
  }
  EXPECT_EQ(etcd.connections(), 2u);
}

TEST(EtcdClientTest, SilentEndpointIsLeftAfterTheAttemptTimeout) {
  const SilentListener silent;
  const FakeEtcd good(grpc::Status::OK);
  EtcdClient client(
      {.endpoints = {silent.endpoint(), good.endpoint()}, .attempt_timeout = milliseconds(300)});
  const auto response = client.Range(RangeRequest(), Soon());
  EXPECT_TRUE(response.ok()) << response.status();
}

}  // namespace
}  // namespace pawl
