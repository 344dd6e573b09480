// A gRPC server behind a GuardedPort, and raw connections to it.
#include "client_lib/security/admission/guarded_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/security/admission/admitted_call.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

// Debian's c-ares, by which gRPC resolves names, does not free a name at the end of the process.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares\n"; }

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kTimeout{20};

// Refuses all registrations; answers the other rpcs that tests call.
class Service final : public Scheduler::CallbackService {
 public:
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const RegisterRequest*,
                                     RegisterResponse*) override {
    return Answer(context, absl::InvalidArgumentError("no"));
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const HeartbeatRequest*,
                                      HeartbeatResponse*) override {
    return Answer(context, absl::OkStatus());
  }
  // Stays pending until Release.
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const GetStatusRequest*,
                                      GetStatusResponse*) override {
    if (const absl::Status refusal = RefusalOf(*context); !refusal.ok())
      return Answer(context, refusal);
    MutexLock lock(mu_);
    pending_.push_back(context->DefaultReactor());
    return pending_.back();
  }

  size_t pending() {
    MutexLock lock(mu_);
    return pending_.size();
  }
  void Release() {
    std::vector<grpc::ServerUnaryReactor*> pending;
    {
      MutexLock lock(mu_);
      pending.swap(pending_);
    }
    for (grpc::ServerUnaryReactor* const reactor : pending) reactor->Finish(grpc::Status::OK);
  }

 private:
  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                          absl::Status status) {
    if (absl::Status refusal = RefusalOf(*context); !refusal.ok()) status = std::move(refusal);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status, context));
    return reactor;
  }

  Mutex mu_;
  std::vector<grpc::ServerUnaryReactor*> pending_ PAWL_GUARDED_BY(mu_);
};

class RawSocket {
 public:
  // Connects 127.0.0.1:local_port with host:port. 0: any local port.
  explicit RawSocket(int port, const char* host = "127.0.0.1", int local_port = 0)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const sockaddr_in from = Address("127.0.0.1", local_port);
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
    const sockaddr_in to = Address(host, port);
    EXPECT_EQ(connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  RawSocket(RawSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~RawSocket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  int local_port() const {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  // Whether the peer closes within the time.
  bool IsClosedWithin(milliseconds time) {
    pollfd ready = {descriptor_, POLLIN, 0};
    char byte = 0;
    return poll(&ready, 1, static_cast<int>(time.count())) == 1 &&
           recv(descriptor_, &byte, 1, 0) <= 0;
  }
  // The same after answers, which may be unread.
  bool HangsUpWithin(milliseconds time) {
    pollfd ready = {descriptor_, POLLRDHUP, 0};
    return poll(&ready, 1, static_cast<int>(time.count())) == 1;
  }
  // Whether the peer sends something within the time.
  bool IsAnsweredWithin(milliseconds time) {
    pollfd ready = {descriptor_, POLLIN, 0};
    char byte = 0;
    return poll(&ready, 1, static_cast<int>(time.count())) == 1 &&
           recv(descriptor_, &byte, 1, 0) == 1;
  }

 private:
  static sockaddr_in Address(const char* host, int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, host, &address.sin_addr);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  int descriptor_;
};

// Takes all file descriptors of the process.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {256, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int taken = 0; taken >= 0;) {
      taken = dup(STDERR_FILENO);
      if (taken >= 0) taken_.push_back(taken);
    }
  }
  ~NoDescriptors() {
    while (!taken_.empty()) ReleaseOne();
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  void ReleaseOne() {
    close(taken_.back());
    taken_.pop_back();
  }

 private:
  rlimit before_ = {};
  std::vector<int> taken_;
};

// Streams of the services that gRPC adds to a server, on one connection.
class Streams {
 public:
  explicit Streams(int port)
      : stub_(grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                        grpc::InsecureChannelCredentials(),
                                        ChannelSettings(ChannelKind::kControl))) {}
  ~Streams() {
    for (const auto& stream : streams_) stream->context.TryCancel();
    streams_.clear();
    completions_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; completions_.Next(&tag, &ok);) {
    }
  }

  // Opens a stream with one message. Whether an answer came; otherwise the stream has ended.
  bool Open(const std::string& method, const std::string& message) {
    auto stream = std::make_unique<Stream>();
    SetDeadline(stream->context, kTimeout);
    stream->call = stub_.PrepareCall(&stream->context, method, &completions_);
    stream->call->StartCall(nullptr);
    Wait();
    const grpc::Slice slice(message);
    stream->call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    Wait();
    grpc::ByteBuffer answer;
    stream->call->Read(&answer, nullptr);
    const bool is_answered = Wait();
    streams_.push_back(std::move(stream));
    return is_answered;
  }

 private:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  };

  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return completions_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue completions_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// ServerReflectionRequest: list_services.
constexpr char kListServices[] = "\x3a\x01*";
constexpr char kWatchHealth[] = "/grpc.health.v1.Health/Watch";

size_t Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class GuardedPortTest : public ::testing::Test {
 protected:
  GuardedPortTest() { security_.figures = std::make_shared<AdmissionFigures>(); }
  ~GuardedPortTest() override {
    service_.Release();
    if (port_ != nullptr) port_->Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + seconds(1));
  }

  void Listen(const std::string& address = "127.0.0.1:0") {
    port_ = std::make_unique<GuardedPort>(security_);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    ApplyServerSettings(builder, ChannelKind::kControl);
    ASSERT_TRUE(port_->Listen(builder, address).ok());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    port_->Start();
    stub_ = MakeStub();
  }
  std::unique_ptr<Scheduler::Stub> MakeStub(const std::string& host = "127.0.0.1") {
    return Scheduler::NewStub(grpc::CreateCustomChannel(absl::StrCat(host, ":", port_->port()),
                                                        grpc::InsecureChannelCredentials(),
                                                        ChannelSettings(ChannelKind::kControl)));
  }
  static grpc::Status Heartbeat(Scheduler::Stub& stub) {
    grpc::ClientContext context;
    SetDeadline(context, kTimeout);
    HeartbeatResponse response;
    return stub.Heartbeat(&context, HeartbeatRequest(), &response);
  }
  grpc::Status Register() {
    grpc::ClientContext context;
    SetDeadline(context, kTimeout);
    RegisterResponse response;
    return stub_->Register(&context, RegisterRequest(), &response);
  }

  ListenerSecurity security_{grpc::InsecureServerCredentials()};
  Service service_;
  std::unique_ptr<GuardedPort> port_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Scheduler::Stub> stub_;
};

TEST_F(GuardedPortTest, ClientsConnectByEveryAddressOfAWildcard) {
  Listen("0.0.0.0:0");
  EXPECT_TRUE(Heartbeat(*stub_).ok());
  const auto by_name = MakeStub("localhost");
  EXPECT_TRUE(Heartbeat(*by_name).ok());
  EXPECT_TRUE(Eventually([&] { return security_.figures->connections == 2; }));
}

TEST_F(GuardedPortTest, ConnectionsCloseOnceWhenCertificatesAreRevoked) {
  auto revocations = std::make_shared<std::atomic<uint64_t>>(3);
  security_.revocations = [revocations] { return revocations->load(); };
  Listen();
  RawSocket connection(port_->port());
  connection.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_TRUE(connection.IsAnsweredWithin(kTimeout));
  // The port looks each second. After four seconds gRPC closes a connection that answers no pings.
  EXPECT_FALSE(connection.HangsUpWithin(milliseconds(1500)));
  ++*revocations;
  EXPECT_TRUE(connection.HangsUpWithin(milliseconds(2200)));
  RawSocket next(port_->port());
  next.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_TRUE(next.IsAnsweredWithin(kTimeout));
  EXPECT_FALSE(next.HangsUpWithin(milliseconds(1500)));
}

TEST_F(GuardedPortTest, ConnectionsOfRevokedPeersCloseOnceTheProcessHasDescriptors) {
  auto revocations = std::make_shared<std::atomic<uint64_t>>(3);
  auto reads = std::make_shared<std::atomic<int>>(0);
  security_.revocations = [=] {
    ++*reads;
    return revocations->load();
  };
  Listen();
  // gRPC's client answers the pings of the server, which otherwise closes too.
  const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_->port()),
                                                 grpc::InsecureChannelCredentials(),
                                                 ChannelSettings(ChannelKind::kControl));
  ASSERT_TRUE(Heartbeat(*Scheduler::NewStub(channel)).ok());
  std::optional<NoDescriptors> none(std::in_place);
  ++*revocations;
  const int before = reads->load();
  // The second look begins after the first attempt.
  ASSERT_TRUE(Eventually([&] { return reads->load() >= before + 2; }));
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  none.reset();
  EXPECT_TRUE(Eventually([&] { return channel->GetState(false) != GRPC_CHANNEL_READY; }));
}

TEST_F(GuardedPortTest, TakenPortIsNamed) {
  Listen();
  GuardedPort other(security_);
  grpc::ServerBuilder builder;
  const std::string address = absl::StrCat("127.0.0.1:", port_->port());
  const absl::Status status = other.Listen(builder, address);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(address), std::string::npos) << status;
  EXPECT_NE(status.message().find("in use"), std::string::npos) << status;
}

TEST_F(GuardedPortTest, GarbageIsClosedAtOnce) {
  Listen();
  for (const char* const bytes : {"GET / HTTP/1.1\r\n", "PRI * HTTP/1.0", "\x16\x03\x01"}) {
    RawSocket connection(port_->port());
    connection.Send(bytes);
    EXPECT_TRUE(connection.IsClosedWithin(kTimeout)) << bytes;
  }
  EXPECT_EQ(security_.figures->refused_connections, 3u);
  EXPECT_TRUE(Heartbeat(*stub_).ok());
}

TEST_F(GuardedPortTest, HandshakeMayComeInPieces) {
  Listen();
  RawSocket connection(port_->port());
  connection.Send("PRI * HT");
  EXPECT_FALSE(connection.IsClosedWithin(milliseconds(50)));
  connection.Send("TP/2.0\r\n\r\nSM\r\n\r\n");
  // The settings of the server.
  EXPECT_TRUE(connection.IsAnsweredWithin(kTimeout));
}

TEST_F(GuardedPortTest, TlsRecordMustBeComplete) {
  security_.is_tls = true;
  Listen();
  RawSocket other_type(port_->port());
  other_type.Send(std::string("\x16\x03\x01\x00\x05\x02", 6));
  EXPECT_TRUE(other_type.IsClosedWithin(kTimeout));
  RawSocket connection(port_->port());
  connection.Send(std::string("\x16\x03\x01\x00\x08\x01\x00\x00\x04", 9));
  EXPECT_FALSE(connection.IsClosedWithin(milliseconds(50)));
  connection.Send("abcd");
  // gRPC, which speaks plain HTTP/2 here, takes it as garbage.
  EXPECT_TRUE(connection.IsAnsweredWithin(kTimeout) || connection.IsClosedWithin(kTimeout));
  EXPECT_EQ(security_.figures->refused_connections, 1u);
}

TEST_F(GuardedPortTest, SilentConnectionsEndAndDoNotKeepOutClients) {
  security_.connections.max_silent_per_host = 2;
  security_.connections.max_silence = seconds(1);
  Listen();
  std::vector<RawSocket> silent;
  for (int i = 0; i < 3; ++i) silent.emplace_back(port_->port());
  EXPECT_TRUE(silent[0].IsClosedWithin(milliseconds(900)));
  EXPECT_TRUE(Heartbeat(*stub_).ok());
  EXPECT_TRUE(silent[1].IsClosedWithin(kTimeout));
  EXPECT_TRUE(silent[2].IsClosedWithin(kTimeout));
}

TEST_F(GuardedPortTest, ConnectionsBeyondTheLimitAreClosedUntilOthersEnd) {
  security_.connections.max_connections_per_host = 2;
  Listen();
  ASSERT_TRUE(Heartbeat(*stub_).ok());
  std::unique_ptr<Scheduler::Stub> second = MakeStub();
  ASSERT_TRUE(Heartbeat(*second).ok());
  RawSocket third(port_->port());
  EXPECT_TRUE(third.IsClosedWithin(kTimeout));
  second.reset();
  EXPECT_TRUE(Eventually([&] { return Heartbeat(*MakeStub()).ok(); }));
  EXPECT_TRUE(Heartbeat(*stub_).ok());
}

TEST_F(GuardedPortTest, HandshakesOfAHostTakeTurns) {
  security_.connections.burst_handshakes_per_host = 2;
  security_.connections.handshakes_per_second_per_host = 2;
  Listen();
  ASSERT_TRUE(Heartbeat(*stub_).ok());
  ASSERT_TRUE(Heartbeat(*MakeStub()).ok());
  const MonotonicTime started = Clock::Real().Now();
  // Two turns come back in a second.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Heartbeat(*MakeStub()).ok());
  EXPECT_GE(Clock::Real().Now() - started, milliseconds(1000));
}

TEST_F(GuardedPortTest, LackOfDescriptorsCostsNoProcessorTime) {
  Listen();
  ASSERT_TRUE(Heartbeat(*stub_).ok());
  std::optional<NoDescriptors> none(std::in_place);
  none->ReleaseOne();
  RawSocket connection(port_->port());
  connection.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const double before = ProcessorSeconds();
  EXPECT_FALSE(connection.IsAnsweredWithin(milliseconds(500)));
  EXPECT_LT(ProcessorSeconds() - before, 0.05);
  none.reset();
  EXPECT_TRUE(connection.IsAnsweredWithin(kTimeout));
}

TEST_F(GuardedPortTest, RemotePortHasOneConnection) {
  Listen("0.0.0.0:0");
  RawSocket first(port_->port());
  first.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_TRUE(first.IsAnsweredWithin(kTimeout));
  RawSocket second(port_->port(), "127.0.0.2", first.local_port());
  // Sooner than one that is silent.
  EXPECT_TRUE(second.IsClosedWithin(security_.connections.max_silence / 2));
  EXPECT_TRUE(Eventually([&] { return security_.figures->refused_connections == 1; }));
}

TEST_F(GuardedPortTest, OpenReflectionStreamsTakeFewThreads) {
  Listen();
  const size_t before = Threads();
  Streams streams(port_->port());
  int answered = 0;
  for (int i = 0; i < 200; ++i) answered += streams.Open(kReflection, kListServices);
  EXPECT_GT(answered, 0);
  EXPECT_LT(Threads(), before + 50);
  EXPECT_TRUE(Heartbeat(*stub_).ok());
}

// Quotas.

class QuotaTest : public GuardedPortTest {
 protected:
  void ListenWith(const PeerLimits& limits) {
    security_.quotas = std::make_shared<PeerQuotas>(limits);
    Listen();
  }
  // A pending call and its outcome.
  struct Pending {
    grpc::ClientContext context;
    GetStatusRequest request;
    GetStatusResponse response;
    std::atomic<bool> done{false};
    grpc::Status status;
  };
  std::unique_ptr<Pending> StartPending() {
    auto pending = std::make_unique<Pending>();
    SetDeadline(pending->context, kTimeout);
    stub_->async()->GetStatus(&pending->context, &pending->request, &pending->response,
                              [call = pending.get()](grpc::Status status) {
                                call->status = std::move(status);
                                call->done = true;
                              });
    return pending;
  }
};

TEST_F(QuotaTest, CallsBeyondThePendingOnesWait) {
  PeerLimits limits;
  limits.max_pending_calls = 2;
  ListenWith(limits);
  std::vector<std::unique_ptr<Pending>> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(StartPending());
  ASSERT_TRUE(Eventually([&] { return security_.quotas->delayed() == 1; }));
  EXPECT_EQ(service_.pending(), 2u);
  service_.Release();
  ASSERT_TRUE(Eventually([&] { return service_.pending() == 1; }));
  service_.Release();
  for (const auto& call : calls) {
    ASSERT_TRUE(Eventually([&] { return call->done.load(); }));
    EXPECT_TRUE(call->status.ok());
  }
}

TEST_F(QuotaTest, CallsBeyondTheWaitingOnesAreRefusedWithAPushback) {
  PeerLimits limits;
  limits.max_pending_calls = 1;
  limits.max_waiting_calls = 1;
  ListenWith(limits);
  const auto first = StartPending();
  ASSERT_TRUE(Eventually([&] { return service_.pending() == 1; }));
  const auto second = StartPending();
  ASSERT_TRUE(Eventually([&] { return security_.quotas->delayed() == 1; }));
  const auto third = StartPending();
  ASSERT_TRUE(Eventually([&] { return third->done.load(); }));
  const absl::Status status = FromGrpcStatus(third->status, &third->context);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(status.GetPayload(kPushbackPayloadUrl).has_value());
  EXPECT_EQ(security_.quotas->refused(), 1u);
  service_.Release();
  ASSERT_TRUE(Eventually([&] { return service_.pending() == 1; }));
  service_.Release();
  ASSERT_TRUE(Eventually([&] { return first->done && second->done; }));
}

TEST_F(QuotaTest, RefusedStreamsOfOtherServicesEnd) {
  PeerLimits limits;
  limits.max_pending_calls = 2;
  limits.max_waiting_calls = 0;
  ListenWith(limits);
  Streams streams(port_->port());
  EXPECT_TRUE(streams.Open(kWatchHealth, ""));
  EXPECT_TRUE(streams.Open(kReflection, kListServices));
  EXPECT_FALSE(streams.Open(kWatchHealth, ""));
  EXPECT_FALSE(streams.Open(kReflection, kListServices));
  EXPECT_EQ(security_.quotas->refused(), 2u);
}

TEST_F(QuotaTest, PeerWhoseCallsAreRefusedIsSlowedDown) {
  PeerLimits limits;
  limits.tokens_per_second = 2 * kRefusedCost;
  limits.burst_tokens = 10 * kRefusedCost;
  ListenWith(limits);
  // A registration that is refused costs twice.
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Register().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(security_.quotas->delayed(), 0u);
  const MonotonicTime started = Clock::Real().Now();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Register().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_GE(Clock::Real().Now() - started, milliseconds(1500));
  EXPECT_GE(security_.quotas->delayed(), 2u);
}

TEST_F(QuotaTest, PeerThatIgnoresRefusalsLosesItsConnection) {
  PeerLimits limits;
  limits.tokens_per_second = 1;
  limits.burst_tokens = kRefusedCost;
  limits.max_waiting_calls = 0;
  ListenWith(limits);
  EXPECT_EQ(Register().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_TRUE(Eventually([&] {
    const grpc::StatusCode code = Heartbeat(*stub_).error_code();
    return code == grpc::UNAVAILABLE || code == grpc::CANCELLED;
  }));
}

TEST_F(QuotaTest, PeerLosesItsConnectionOnceTheProcessHasDescriptors) {
  PeerLimits limits;
  limits.tokens_per_second = 1;
  limits.burst_tokens = kRefusedCost;
  limits.max_waiting_calls = 0;
  ListenWith(limits);
  const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_->port()),
                                                 grpc::InsecureChannelCredentials(),
                                                 ChannelSettings(ChannelKind::kControl));
  const auto stub = Scheduler::NewStub(channel);
  ASSERT_TRUE(Heartbeat(*stub).ok());
  EXPECT_EQ(Register().error_code(), grpc::INVALID_ARGUMENT);
  {
    const NoDescriptors none;
    // The port looks at its connections several times.
    const MonotonicTime end = Clock::Real().Now() + seconds(1);
    while (Clock::Real().Now() < end)
      ASSERT_EQ(Heartbeat(*stub).error_code(), grpc::RESOURCE_EXHAUSTED);
    EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  }
  EXPECT_TRUE(Eventually([&] { return channel->GetState(false) != GRPC_CHANNEL_READY; }));
}

TEST_F(QuotaTest, EmptyRequestIsComplete) {
  PeerLimits limits;
  limits.tokens_per_second = 1;
  limits.burst_tokens = 20;
  ListenWith(limits);
  // A call that is abandoned costs more.
  for (int i = 0; i < 18; ++i) ASSERT_TRUE(Heartbeat(*stub_).ok());
  EXPECT_EQ(security_.quotas->delayed() + security_.quotas->refused(), 0u);
}

TEST_F(QuotaTest, StopLetsWaitingCallsContinue) {
  PeerLimits limits;
  limits.max_pending_calls = 1;
  ListenWith(limits);
  const auto first = StartPending();
  const auto second = StartPending();
  ASSERT_TRUE(Eventually([&] { return security_.quotas->delayed() == 1; }));
  port_->Stop();
  ASSERT_TRUE(Eventually([&] { return service_.pending() == 2; }));
  service_.Release();
  ASSERT_TRUE(Eventually([&] { return first->done && second->done; }));
}

}  // namespace
}  // namespace pawl
