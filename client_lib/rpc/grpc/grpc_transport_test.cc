#include "client_lib/rpc/grpc/grpc_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/byte_buffer.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/parameter.grpc.pb.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Flat(const ByteView& view) {
  std::string bytes(view.size(), '\0');
  view.CopyTo(bytes.data());
  return bytes;
}

struct Answer {
  absl::Status status;
  std::string bytes;
};

// A service of generated code only. Push answers with the sum of the bytes it received, Pull with
// as many bytes as requested.
class PlainService final : public Parameter::Service {
 public:
  grpc::Status Push(grpc::ServerContext* context, const PushRequest* request,
                    PushResponse* response) override {
    if (!status.ok()) return ToGrpcStatus(status, context);
    uint32_t sum = 0;
    for (const PushSegment& segment : request->segments()) {
      for (const char c : segment.values()) sum += static_cast<uint8_t>(c);
    }
    response->set_accepted(sum);
    return grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext* context, const PullRequest* request,
                    PullResponse* response) override {
    if (compresses) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    for (const PullSegment& segment : request->segments()) {
      response->add_results()->set_values(std::string(segment.partition(), 'x'));
    }
    return grpc::Status::OK;
  }
  grpc::Status EndStep(grpc::ServerContext* context, const EndStepRequest*,
                       EndStepResponse*) override {
    // Waits until the call is cancelled.
    Eventually([&] { return context->IsCancelled(); });
    return grpc::Status::CANCELLED;
  }

  absl::Status status;
  bool compresses = false;
};

template <typename Service>
std::unique_ptr<grpc::Server> Start(Service&& register_service, std::string* address) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  ApplyServerSettings(builder);
  register_service(builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  *address = absl::StrCat("127.0.0.1:", port);
  return server;
}

Answer CallAndWait(Transport& transport, const std::string& address, Method method,
                   OutgoingMessage request, MonotonicDuration timeout = seconds(20)) {
  std::promise<Answer> promise;
  transport.Call(address, method, std::move(request), timeout,
                 [&](absl::Status status, IncomingMessage message) {
                   promise.set_value({std::move(status), Flat(message.bytes)});
                 });
  return promise.get_future().get();
}

class GrpcTransportTest : public testing::Test {
 protected:
  GrpcTransportTest()
      : server_(Start([this](grpc::ServerBuilder& builder) { builder.RegisterService(&service_); },
                      &address_)) {}

  PlainService service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  GrpcTransport transport_{grpc::InsecureChannelCredentials()};
};

TEST_F(GrpcTransportTest, GeneratedCodeAndCodecReadEachOther) {
  for (const size_t size : {0, 1, 4, 255, 256, 257, 16384, 1 << 20, 5 << 20}) {
    const std::string values(size, '\3');
    const std::string keys(8, 'k');
    const SegmentView segment{
        1, 2, 3, FLOAT32, ByteView(keys.data(), 8), ByteView(values.data(), size)};
    const Answer answer = CallAndWait(transport_, address_, Method::kPush,
                                      EncodePushRequest(RequestHeader(), {segment, segment}));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    PushResponse response;
    ASSERT_TRUE(response.ParseFromString(answer.bytes));
    EXPECT_EQ(response.accepted(), 6 * size);
  }
}

// A few kilobytes could become gigabytes before their size is checked.
TEST_F(GrpcTransportTest, CompressedAnswerIsRefused) {
  std::string address;
  const auto server = Start(
      [this](grpc::ServerBuilder& builder) {
        builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, true);
        builder.RegisterService(&service_);
      },
      &address);
  service_.compresses = true;
  const SegmentView large{.table = 1, .partition = 32 << 20};
  const Answer answer =
      CallAndWait(transport_, address, Method::kPull, EncodePullRequest(RequestHeader(), {large}));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnimplemented) << answer.status;
  EXPECT_TRUE(answer.bytes.empty());
}

TEST_F(GrpcTransportTest, AnswersArriveInSlicesWithoutCopies) {
  const SegmentView small{.table = 1, .partition = 5};
  const SegmentView large{.table = 1, .partition = 3 << 20};
  std::promise<void> promise;
  transport_.Call(address_, Method::kPull, EncodePullRequest(RequestHeader(), {small, large}),
                  seconds(20), [&](absl::Status status, IncomingMessage message) {
                    EXPECT_TRUE(status.ok()) << status;
                    const absl::StatusOr<PullResponseView> view = DecodePullResponse(message.bytes);
                    EXPECT_TRUE(view.ok()) << view.status();
                    EXPECT_EQ(Flat(view->results[0].values), "xxxxx");
                    EXPECT_EQ(Flat(view->results[1].values), std::string(3 << 20, 'x'));
                    promise.set_value();
                  });
  promise.get_future().get();
}

TEST_F(GrpcTransportTest, PayloadsTravelWithTheStatus) {
  service_.status = absl::FailedPreconditionError("elsewhere");
  service_.status.SetPayload(kRoutingPayloadUrl, absl::Cord(std::string("\0\1\2binary\xff", 10)));
  Answer answer =
      CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}));
  EXPECT_EQ(answer.status, service_.status);

  service_.status = absl::ResourceExhaustedError("full");
  service_.status.SetPayload(kPushbackPayloadUrl, absl::Cord("250"));
  answer = CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}));
  EXPECT_EQ(answer.status, service_.status);

  service_.status = absl::UnavailableError("rebuilding");
  service_.status.SetPayload(kRebuildChallengePayloadUrl, absl::Cord("18446744073709551615"));
  answer = CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}));
  EXPECT_EQ(answer.status, service_.status);

  service_.status = absl::InvalidArgumentError(std::string(2 * kMaxStatusMessageBytes, 'x'));
  answer = CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}));
  EXPECT_EQ(answer.status, absl::InvalidArgumentError(std::string(kMaxStatusMessageBytes, 'x')));
}

TEST_F(GrpcTransportTest, RoutingTableOf1000PartitionsFitsIntoAStatus) {
  service_.status = absl::FailedPreconditionError("elsewhere");
  service_.status.SetPayload(kRoutingPayloadUrl, absl::Cord(std::string(20000, '\x81')));
  const Answer answer =
      CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}));
  EXPECT_EQ(answer.status, service_.status);
}

TEST_F(GrpcTransportTest, AddressWithoutServerIsUnavailable) {
  EXPECT_EQ(
      CallAndWait(transport_, "127.0.0.1:1", Method::kPush, EncodePushRequest(RequestHeader(), {}))
          .status.code(),
      absl::StatusCode::kUnavailable);
}

TEST_F(GrpcTransportTest, LateAnswerIsDeadlineExceeded) {
  EXPECT_EQ(CallAndWait(transport_, address_, Method::kEndStep, EncodeSmall(EndStepRequest()),
                        milliseconds(100))
                .status.code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GrpcTransportTest, CallDoesNotKeepAnOldConnection) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  ApplyServerSettings(builder, ChannelKind::kBulk,
                      {.max = milliseconds(200), .grace = milliseconds(200)});
  builder.RegisterService(&service_);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(CallAndWait(transport_, absl::StrCat("127.0.0.1:", port), Method::kEndStep,
                        EncodeSmall(EndStepRequest()))
                .status.code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(GrpcTransportTest, ShutdownEndsCallsAndTimers) {
  std::promise<absl::Status> ended;
  std::promise<void> fired;
  transport_.Call(
      address_, Method::kEndStep, EncodeSmall(EndStepRequest()), seconds(600),
      [&](absl::Status status, IncomingMessage) { ended.set_value(std::move(status)); });
  transport_.After(seconds(600), [&] { fired.set_value(); });
  transport_.Shutdown();
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kCancelled);
  fired.get_future().get();
  EXPECT_EQ(CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}))
                .status.code(),
            absl::StatusCode::kCancelled);
}

TEST_F(GrpcTransportTest, CancelCallsAffectsOnlyPresentCallsToTheAddress) {
  std::string other_address;
  const std::unique_ptr<grpc::Server> other = Start(
      [this](grpc::ServerBuilder& builder) { builder.RegisterService(&service_); }, &other_address);
  std::promise<absl::Status> cancelled, left_alone;
  transport_.Call(
      address_, Method::kEndStep, EncodeSmall(EndStepRequest()), seconds(600),
      [&](absl::Status status, IncomingMessage) { cancelled.set_value(std::move(status)); });
  transport_.Call(
      other_address, Method::kEndStep, EncodeSmall(EndStepRequest()), seconds(600),
      [&](absl::Status status, IncomingMessage) { left_alone.set_value(std::move(status)); });
  std::future<absl::Status> still_waits = left_alone.get_future();
  transport_.CancelCalls(address_);
  EXPECT_EQ(cancelled.get_future().get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(still_waits.wait_for(milliseconds(50)), std::future_status::timeout);
  EXPECT_TRUE(
      CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}))
          .status.ok());
  transport_.Shutdown();
  EXPECT_EQ(still_waits.get().code(), absl::StatusCode::kCancelled);
}

TEST_F(GrpcTransportTest, TimersRunAfterTheirDelay) {
  const MonotonicTime begin = Clock::Real().Now();
  std::promise<void> fired;
  transport_.After(milliseconds(50), [&] { fired.set_value(); });
  fired.get_future().get();
  EXPECT_GE(Clock::Real().Now() - begin, milliseconds(50));
}

TEST_F(GrpcTransportTest, ControlCallsUseTheFullMethodName) {
  GrpcControlChannel control(address_, grpc::InsecureChannelCredentials());
  std::promise<absl::Status> promise;
  control.Call("/pawl.Parameter/Push", EncodePushRequest(RequestHeader(), {}), seconds(20),
               [&](absl::Status status, IncomingMessage) { promise.set_value(std::move(status)); });
  EXPECT_TRUE(promise.get_future().get().ok());
}

TEST_F(GrpcTransportTest, ControlCallsEndAtDeadlineOrShutdown) {
  GrpcControlChannel control(address_, grpc::InsecureChannelCredentials());
  const auto call = [&](MonotonicDuration timeout) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    control.Call(
        "/pawl.Parameter/EndStep", EncodeSmall(EndStepRequest()), timeout,
        [promise](absl::Status status, IncomingMessage) { promise->set_value(std::move(status)); });
    return promise->get_future();
  };
  EXPECT_EQ(call(milliseconds(100)).get().code(), absl::StatusCode::kDeadlineExceeded);
  std::future<absl::Status> ended = call(seconds(600));
  std::promise<void> fired;
  control.After(seconds(600), [&] { fired.set_value(); });
  control.Shutdown();
  EXPECT_EQ(ended.get().code(), absl::StatusCode::kCancelled);
  fired.get_future().get();
  EXPECT_EQ(call(seconds(600)).get().code(), absl::StatusCode::kCancelled);
}

// Memory that is unmapped as soon as the transport releases it.
class BorrowedMemory {
 public:
  explicit BorrowedMemory(size_t size)
      : size_(size),
        data_(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  // The message's owner records when gRPC has released it.
  OutgoingMessage Message() {
    OutgoingMessage message;
    message.bytes.Append(data_, size_);
    message.owner = std::shared_ptr<const void>(this, [this](const void*) { released_ = true; });
    return message;
  }
  bool released() const { return released_; }
  void Unmap() { munmap(data_, size_); }

 private:
  const size_t size_;
  void* const data_;
  std::atomic<bool> released_{false};
};

// Sends 32 MiB that the peer does not read, and unmaps the memory when `done` runs.
void ExpectMemoryReturnedAfterDeadline(GrpcTransport& transport, const std::string& address) {
  BorrowedMemory memory(32 << 20);
  std::promise<absl::Status> promise;
  transport.Call(address, Method::kPush, memory.Message(), milliseconds(300),
                 [&](absl::Status status, IncomingMessage) {
                   EXPECT_TRUE(memory.released());
                   memory.Unmap();
                   promise.set_value(std::move(status));
                 });
  std::future<absl::Status> future = promise.get_future();
  // Keepalive breaks a stalled connection after 4 s.
  ASSERT_EQ(future.wait_for(seconds(25)), std::future_status::ready);
  EXPECT_EQ(future.get().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(GrpcTransportMemoryTest, DeadlineReturnsMemoryWhileTheServerWindowIsFull) {
  // Accepts calls and never reads their messages.
  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::string address;
  const std::unique_ptr<grpc::Server> server = Start(
      [&](grpc::ServerBuilder& builder) {
        builder.RegisterAsyncGenericService(&service);
        queue = builder.AddCompletionQueue();
      },
      &address);
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream(&context);
  service.RequestCall(&context, &stream, queue.get(), queue.get(), nullptr);
  std::thread poller([&] {
    void* tag;
    bool ok;
    while (queue->Next(&tag, &ok)) {
    }
  });
  {
    GrpcTransport transport(grpc::InsecureChannelCredentials());
    ExpectMemoryReturnedAfterDeadline(transport, address);
  }
  server->Shutdown(std::chrono::system_clock::now());
  queue->Shutdown();
  poller.join();
}

// Forwards bytes until told to stop, and then reads no more.
class StallingProxy {
 public:
  explicit StallingProxy(const std::string& server_address) {
    server_port_ =
        static_cast<uint16_t>(std::stoi(server_address.substr(server_address.find(':') + 1)));
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Local(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
        << std::strerror(errno);
    EXPECT_EQ(listen(listener_, 8), 0) << std::strerror(errno);
    socklen_t length = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~StallingProxy() {
    ending_ = true;
    thread_.join();
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Stall() { stalled_ = true; }

 private:
  static sockaddr_in Local(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void Run() {
    std::vector<std::pair<int, int>> pairs;
    while (!ending_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      if (!stalled_) {
        for (const auto& [a, b] : pairs) {
          fds.push_back({a, POLLIN, 0});
          fds.push_back({b, POLLIN, 0});
        }
      }
      if (poll(fds.data(), fds.size(), 10) <= 0) continue;
      if (fds[0].revents & POLLIN) {
        const int client = accept(listener_, nullptr, nullptr);
        const int server = socket(AF_INET, SOCK_STREAM, 0);
        const sockaddr_in address = Local(server_port_);
        EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
            << std::strerror(errno);
        pairs.emplace_back(client, server);
        continue;
      }
      for (size_t i = 1; i < fds.size() && !stalled_; ++i) {
        if (!(fds[i].revents & POLLIN)) continue;
        const int to = i % 2 == 1 ? fds[i + 1].fd : fds[i - 1].fd;
        char buffer[65536];
        const ssize_t count = recv(fds[i].fd, buffer, sizeof(buffer), 0);
        if (count > 0) send(to, buffer, static_cast<size_t>(count), MSG_NOSIGNAL);
      }
    }
    for (const auto& [a, b] : pairs) {
      close(a);
      close(b);
    }
  }

  uint16_t server_port_ = 0;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stalled_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

TEST_F(GrpcTransportTest, DeadlineReturnsMemoryWhileTheSocketIsFull) {
  StallingProxy proxy(address_);
  // The connection exists before it stalls.
  ASSERT_TRUE(CallAndWait(transport_, proxy.address(), Method::kPush,
                          EncodePushRequest(RequestHeader(), {}))
                  .status.ok());
  proxy.Stall();
  ExpectMemoryReturnedAfterDeadline(transport_, proxy.address());
}

TEST_F(GrpcTransportTest, ForgetReturnsMemoryOfUnfinishedWrites) {
  StallingProxy proxy(address_);
  ASSERT_TRUE(CallAndWait(transport_, proxy.address(), Method::kPush,
                          EncodePushRequest(RequestHeader(), {}))
                  .status.ok());
  proxy.Stall();
  BorrowedMemory memory(32 << 20);
  std::promise<absl::Status> promise;
  transport_.Call(proxy.address(), Method::kPush, memory.Message(), seconds(600),
                  [&](absl::Status status, IncomingMessage) {
                    EXPECT_TRUE(memory.released());
                    memory.Unmap();
                    promise.set_value(std::move(status));
                  });
  std::future<absl::Status> future = promise.get_future();
  // The socket is full by now.
  EXPECT_EQ(future.wait_for(milliseconds(300)), std::future_status::timeout);
  transport_.Forget(proxy.address());
  EXPECT_EQ(transport_.addresses(), 0u);
  ASSERT_EQ(future.wait_for(seconds(25)), std::future_status::ready);
  EXPECT_EQ(future.get().code(), absl::StatusCode::kCancelled);
}

TEST_F(GrpcTransportTest, ForgottenAddressCanBeCalledAgain) {
  const auto works = [&] {
    return CallAndWait(transport_, address_, Method::kPush, EncodePushRequest(RequestHeader(), {}))
               .status.ok() &&
           CallAndWait(transport_, address_, Method::kPull, EncodePullRequest(RequestHeader(), {}))
               .status.ok();
  };
  EXPECT_TRUE(works());
  EXPECT_EQ(transport_.addresses(), 1u);
  transport_.Forget(address_);
  EXPECT_EQ(transport_.addresses(), 0u);
  transport_.Forget(address_);
  EXPECT_TRUE(works());
  EXPECT_EQ(transport_.addresses(), 1u);
  // Shutdown comes while the connections are being dropped.
  transport_.Forget(address_);
}

TEST(ByteBufferTest, BorrowEndsWithTheLastCopyOfTheBuffer) {
  const std::string first(1000, 'a');
  const std::string second(2000, 'b');
  OutgoingMessage message;
  message.bytes.Append(first.data(), first.size());
  message.bytes.Append(second.data(), second.size());
  bool released = false;
  grpc::ByteBuffer buffer = ToByteBuffer(std::move(message), [&] { released = true; });
  {
    const IncomingMessage received = FromByteBuffer(buffer);
    EXPECT_EQ(Flat(received.bytes), first + second);
    EXPECT_EQ(received.bytes.fragments()[0].data(), first.data());
    buffer.Clear();
    EXPECT_FALSE(released);
  }
  EXPECT_TRUE(released);
}

TEST(ByteBufferTest, EmptyMessageIsAValidBuffer) {
  bool released = false;
  grpc::ByteBuffer buffer = ToByteBuffer(OutgoingMessage(), [&] { released = true; });
  EXPECT_TRUE(released);
  EXPECT_TRUE(buffer.Valid());
  EXPECT_EQ(FromByteBuffer(buffer).bytes.size(), 0);
}

}  // namespace
}  // namespace pawl
