// A port with TLS and small limits, and peers with a certificate that exceed them.
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/admission/guarded_port.h"
#include "client_lib/security/security.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/harness/test_certificates.h"
#include "tests/hostile/http2_connection.h"
#include "tests/hostile/raw_connection.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};
constexpr std::chrono::milliseconds kExclusion{1500};
constexpr char kHeartbeat[] = "/pawl.Scheduler/Heartbeat";
constexpr size_t kMiB = 1 << 20;

class Service final : public Scheduler::CallbackService {
 public:
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const HeartbeatRequest*,
                                      HeartbeatResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

void ResetStreams(Http2Connection& connection) {
  for (int i = 0; i < 64; ++i) {
    connection.StartCall(kHeartbeat);
    connection.ResetStream();
  }
}

class ConnectionWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    // A peer may close a TLS connection before this process has written.
    std::signal(SIGPIPE, SIG_IGN);
    folder_ = TestCertificatesFolder("certificates");
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights").ok());
    security_ = *Security::Open({.tls_dir = folder_ + "/server"}, kAllRoles);
    listening_.emplace(security_->Listening());
    listening_->ledger.burst_stray_seconds = 0.2;
    listening_->ledger.max_incomplete_bytes = 50 * kMiB;
    listening_->ledger.incomplete_bytes_per_connection = 0;
    // Clients on a fast link cancel more than those on a slow one.
    listening_->ledger.burst_forgiven_bytes = 4096.0 * kMiB;
    listening_->ledger.first_exclusion = kExclusion;
    listening_->quotas = std::make_shared<PeerQuotas>(
        PeerLimits{.tokens_per_second = 100, .burst_tokens = 2000, .max_debt_seconds = 5});
    listening_->figures = figures_;
    port_ = std::make_unique<GuardedPort>(*listening_);
    grpc::ServerBuilder builder;
    ApplyServerSettings(builder, ChannelKind::kBulk);
    ASSERT_TRUE(port_->Listen(builder, "127.0.0.1:0").ok());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    port_->Start();
    address_ = absl::StrCat("127.0.0.1:", port_->port());
    bystander_channel_ = MakeChannel("client");
    bystander_ = Scheduler::NewStub(bystander_channel_);
    ASSERT_TRUE(Heartbeat(*bystander_).ok());
  }
  void TearDown() override {
    port_->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  std::shared_ptr<grpc::Channel> MakeChannel(const std::string& role) {
    auto security = *Security::Open({.tls_dir = absl::StrCat(folder_, "/", role)}, kAllRoles);
    auto channel = grpc::CreateCustomChannel(address_, security->To(RoleSet(PeerRole::kServer)),
                                             ChannelSettings(ChannelKind::kBulk));
    securities_.push_back(std::move(security));
    return channel;
  }
  std::unique_ptr<Scheduler::Stub> MakeStub(const std::string& role) {
    return Scheduler::NewStub(MakeChannel(role));
  }
  static grpc::Status Heartbeat(Scheduler::Stub& stub, const std::string& node = "") {
    grpc::ClientContext context;
    SetDeadline(context, kTimeout);
    HeartbeatRequest request;
    request.set_node(node);
    HeartbeatResponse response;
    return stub.Heartbeat(&context, request, &response);
  }
  std::optional<Http2Connection> Connect() {
    auto connection = TlsClient(folder_ + "/worker").Connect(address_);
    if (!connection.has_value()) return std::nullopt;
    return Http2Connection(*std::move(connection));
  }
  // Attacks, on one connection after the other, until the port closes one; returns whether it has.
  bool IsClosed(const std::function<void(Http2Connection& connection)>& attack) {
    const MonotonicTime end = Clock::Real().Now() + kTimeout;
    while (Clock::Real().Now() < end) {
      std::optional<Http2Connection> connection = Connect();
      while (connection.has_value() && connection->is_open() && Clock::Real().Now() < end) {
        attack(*connection);
        connection->TakeAnswers();
        if (figures_->closed_connections > 0) return true;
      }
    }
    return false;
  }
  void ExpectOnlyTheOffenderIsClosed() {
    EXPECT_TRUE(Heartbeat(*bystander_).ok());
    EXPECT_EQ(bystander_channel_->GetState(false), GRPC_CHANNEL_READY);
  }

  std::string folder_;
  std::unique_ptr<Security> security_;
  std::vector<std::unique_ptr<Security>> securities_;
  std::optional<ListenerSecurity> listening_;
  std::shared_ptr<AdmissionFigures> figures_ = std::make_shared<AdmissionFigures>();
  Service service_;
  std::unique_ptr<GuardedPort> port_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  // A client with another certificate on the same host, which must not notice anything.
  std::shared_ptr<grpc::Channel> bystander_channel_;
  std::unique_ptr<Scheduler::Stub> bystander_;
};

TEST_F(ConnectionWatchTest, MetadataThatNeverEndsCostsTheConnection) {
  const std::string value(8 * kMiB, 'x');
  EXPECT_TRUE(IsClosed([&](Http2Connection& connection) {
    connection.StartCall(kHeartbeat, {{"x-attack", value}});
  }));
  ExpectOnlyTheOffenderIsClosed();
}

TEST_F(ConnectionWatchTest, MessagesThatNeverEndCostTheConnection) {
  // It announces 60 MiB.
  std::string begin("\0\x03\xc0\0\0", 5);
  begin.append(size_t{64} << 10, 'x');
  EXPECT_TRUE(IsClosed([&](Http2Connection& connection) {
    constexpr uint32_t kStreamsEnd = 33;
    if (connection.last_stream() + 2 < kStreamsEnd) {
      connection.StartCall(kHeartbeat);
      connection.SendSome(connection.last_stream(), begin);
    }
    for (uint32_t stream = 1; stream < connection.last_stream() + 2; stream += 2)
      connection.SendSome(stream, absl::string_view(begin).substr(5));
  }));
  ExpectOnlyTheOffenderIsClosed();
}

TEST_F(ConnectionWatchTest, CallsThatAreResetAtOnceCostTheConnection) {
  EXPECT_TRUE(IsClosed(ResetStreams));
  ExpectOnlyTheOffenderIsClosed();
}

TEST_F(ConnectionWatchTest, CallsOfAnotherRoleCostTheConnection) {
  const std::unique_ptr<Scheduler::Stub> worker = MakeStub("worker");
  ASSERT_TRUE(Heartbeat(*worker).ok());
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 100; ++i) {
      grpc::ClientContext context;
      SetDeadline(context, kTimeout);
      StopJobResponse response;
      const grpc::Status status = worker->StopJob(&context, StopJobRequest(), &response);
      if (status.error_code() != grpc::PERMISSION_DENIED) return true;
    }
    return false;
  }));
  EXPECT_GE(figures_->closed_connections, 1u);
  ExpectOnlyTheOffenderIsClosed();
}

TEST_F(ConnectionWatchTest, PeerGetsNoOtherConnectionUntilItsExclusionEnds) {
  ASSERT_TRUE(IsClosed(ResetStreams));
  const MonotonicTime offended = Clock::Real().Now();
  // An excluded peer's connection does not stay open for so long.
  constexpr std::chrono::milliseconds kStays{500};
  EXPECT_TRUE(Eventually([&] {
    auto next = Connect();
    if (!next.has_value()) return false;
    const MonotonicTime connected = Clock::Real().Now();
    while (next->is_open() && Clock::Real().Now() < connected + kStays) next->TakeAnswers();
    return next->is_open();
  }));
  EXPECT_GE(Clock::Real().Now() - offended, kExclusion);
}

// Limits of gRPC that Pawl sets.

TEST_F(ConnectionWatchTest, MetadataBeyondTheLimitIsRefused) {
  const auto call = [&](size_t bytes) {
    grpc::ClientContext context;
    SetDeadline(context, kTimeout);
    context.AddMetadata("x-large", std::string(bytes, 'x'));
    HeartbeatResponse response;
    return bystander_->Heartbeat(&context, HeartbeatRequest(), &response).error_code();
  };
  EXPECT_EQ(call(size_t{32} << 10), grpc::OK);
  EXPECT_EQ(call(size_t{256} << 10), grpc::RESOURCE_EXHAUSTED);
}

TEST_F(ConnectionWatchTest, StreamsBeyondTheLimitEndTheConnection) {
  auto connection = Connect();
  ASSERT_TRUE(connection.has_value());
  for (int i = 0; i < kMaxStreamsPerConnection; ++i) connection->StartCall(kHeartbeat);
  constexpr std::chrono::milliseconds kStays{500};
  const MonotonicTime end = Clock::Real().Now() + kStays;
  while (connection->is_open() && Clock::Real().Now() < end) connection->TakeAnswers();
  ASSERT_TRUE(connection->is_open());
  EXPECT_TRUE(Eventually([&] {
    connection->StartCall(kHeartbeat);
    return !connection->TakeAnswers();
  }));
}

TEST_F(ConnectionWatchTest, HandshakeThatStopsEndsInTime) {
  // The first message of a real handshake.
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(ssl.get());
  SSL_do_handshake(ssl.get());
  std::string hello(4096, '\0');
  const int size = BIO_read(SSL_get_wbio(ssl.get()), hello.data(), static_cast<int>(hello.size()));
  ASSERT_GT(size, 0);
  hello.resize(static_cast<size_t>(size));
  std::optional<RawConnection> connection = RawConnection::Open(address_);
  ASSERT_TRUE(connection.has_value());
  ASSERT_TRUE(connection->Send(hello));
  const MonotonicTime begin = Clock::Real().Now();
  EXPECT_TRUE(Eventually([&] {
    std::array<char, 4096> answer;
    ssize_t received = 1;
    while (received > 0) received = recv(connection->descriptor(), answer.data(), answer.size(), 0);
    return received == 0 || errno != EAGAIN;
  }));
  EXPECT_GE(Clock::Real().Now() - begin, kHandshakeTimeout / 2);
  EXPECT_EQ(figures_->closed_connections, 0u);
}

TEST_F(ConnectionWatchTest, LargeMessagesAndCancelledOnesKeepTheConnection) {
  const auto channel = MakeChannel("worker");
  const std::unique_ptr<Scheduler::Stub> worker = Scheduler::NewStub(channel);
  const std::string large(6 * kMiB, 'x');
  // Several at a time, so that some call is always open.
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(Heartbeat(*worker, large).ok());
        grpc::ClientContext context;
        // Less than the message takes.
        SetDeadline(context, std::chrono::milliseconds(1 + i % 5));
        HeartbeatRequest request;
        request.set_node(large);
        HeartbeatResponse response;
        (void)worker->Heartbeat(&context, request, &response);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Heartbeat(*worker).ok());
  EXPECT_EQ(figures_->closed_connections, 0u);
}

}  // namespace
}  // namespace pawl
