#include "server/data_plane/raw_service.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "client_lib/rpc/byte_buffer.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{30};

class CountingHandler final : public RequestHandler {
 public:
  void Handle(Method, IncomingMessage, CallContext, Reply reply) override {
    ++calls;
    reply(absl::OkStatus(), OutgoingMessage());
  }

  std::atomic<int> calls{0};
};

class RawServiceTest : public testing::Test {
 protected:
  RawServiceTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  // The status of a call that sends `message`, or that ends its side without one if it is null.
  grpc::StatusCode Call(const grpc::ByteBuffer* message) {
    grpc::GenericStub stub(server_->InProcessChannel(grpc::ChannelArguments()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    grpc::CompletionQueue queue;
    void* tag = nullptr;
    bool ok = false;
    const auto call = stub.PrepareCall(&context, "/pawl.Parameter/EndStep", &queue);
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    if (message != nullptr) {
      call->Write(*message, nullptr);
      queue.Next(&tag, &ok);
    }
    call->WritesDone(nullptr);
    queue.Next(&tag, &ok);
    // The status follows the answer.
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    return status.error_code();
  }

  CountingHandler handler_;
  RawService service_{handler_, Clock::Real(), kParameterMethods};
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(RawServiceTest, EmptyMessageReachesTheHandler) {
  const grpc::ByteBuffer empty = ToByteBuffer(OutgoingMessage());
  Call(&empty);
  EXPECT_EQ(handler_.calls, 1);
}

TEST_F(RawServiceTest, CallWithoutMessageDoesNotReachTheHandler) {
  EXPECT_EQ(Call(nullptr), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(handler_.calls, 0);
}

}  // namespace
}  // namespace pawl
