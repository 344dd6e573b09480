// A gRPC server that ignores pushes and answers every pull with the same 4 MiB by reference. It
// shows the cost of gRPC without copies, checks or computation: the limit of the dense rows besides
// the network.
//
// Usage: bare_server ADDRESS_FILE, where it writes host:port once it listens. Ends with SIGTERM.
#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/process/malloc_tuning.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/request_handler.h"
#include "grpcpp/grpcpp.h"
#include "server/data_plane/raw_service.h"

namespace pawl {
namespace {

constexpr size_t kAnswerFloats = size_t{1} << 20;

class Bare final : public RequestHandler {
 public:
  void Handle(Method method, IncomingMessage, CallContext, Reply reply) override {
    if (method != Method::kPull) return reply(absl::OkStatus(), OutgoingMessage());
    // Not on the stack: with -fsanitize=address gcc 12 takes the view's target for uninitialised.
    std::vector<PullResultView> results(1);
    results[0].values.Append(answer_->data(), answer_->size() * sizeof(float));
    reply(absl::OkStatus(), EncodePullResponse(results, answer_));
  }

 private:
  const std::shared_ptr<const std::vector<float>> answer_ =
      std::make_shared<std::vector<float>>(kAnswerFloats, 1.0f);
};

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bare_server ADDRESS_FILE\n");
    return 2;
  }
  pawl::KeepFreedMemory();
  pawl::Bare handler;
  pawl::RawService service(handler, pawl::Clock::Real(), pawl::kParameterMethods);
  grpc::ServerBuilder builder;
  pawl::ApplyServerSettings(builder);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::ofstream(argv[1]) << "127.0.0.1:" << port << "\n" << std::flush;
  server->Wait();
}
