// A gRPC service whose messages protobuf does not parse.
#ifndef PAWL_SERVER_DATA_PLANE_RAW_SERVICE_H_
#define PAWL_SERVER_DATA_PLANE_RAW_SERVICE_H_

#include <initializer_list>

#include "client_lib/base/clock.h"
#include "client_lib/rpc/request_handler.h"
#include "client_lib/rpc/transport.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace pawl {

// The rpcs that a server serves with a RawService, one service each.
inline constexpr std::initializer_list<Method> kParameterMethods = {
    Method::kPush, Method::kPull, Method::kScan, Method::kEndStep, Method::kTakeOver};
inline constexpr std::initializer_list<Method> kReplicationMethods = {
    Method::kReplicate, Method::kInstallSnapshot, Method::kGoBack};

// Passes the bytes of each request to `handler` and the answer's bytes to gRPC, because protobuf
// would copy keys and values. The handler gets the call's deadline and a flag that is set when the
// caller has gone. A call that is cancelled before its message arrives does not reach the handler.
// Thread-safe. `handler` and `clock` must outlive the gRPC server.
class RawService final : public grpc::Service {
 public:
  // `methods` belong to one service of proto/: gRPC's reflection names it after one of them.
  RawService(RequestHandler& handler, const Clock& clock, std::initializer_list<Method> methods);

 private:
  grpc::ServerUnaryReactor* Serve(Method method, grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

  RequestHandler& handler_;
  const Clock& clock_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_RAW_SERVICE_H_
