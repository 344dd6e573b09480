// A plain gRPC server that answers a pull with the bytes of its keys. It shows gRPC's own cost of a
// small call: the limit of the one-row pull.
//
// Usage: echo_server ADDRESS_FILE, where it writes host:port once it listens. Ends with SIGTERM.
#include <cstdio>
#include <fstream>
#include <memory>

#include "grpcpp/grpcpp.h"
#include "proto/parameter.grpc.pb.h"

namespace pawl {
namespace {

class Echo final : public Parameter::CallbackService {
 public:
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context, const PullRequest* request,
                                 PullResponse* response) override {
    for (const PullSegment& segment : request->segments())
      response->add_results()->set_values(segment.keys());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: echo_server ADDRESS_FILE\n");
    return 2;
  }
  pawl::Echo echo;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::ofstream(argv[1]) << "127.0.0.1:" << port << "\n" << std::flush;
  server->Wait();
}
