// One rpc whose messages protobuf does not touch.
#ifndef PAWL_SERVER_DATA_PLANE_RAW_CALL_H_
#define PAWL_SERVER_DATA_PLANE_RAW_CALL_H_

#include "client_lib/base/clock.h"
#include "client_lib/rpc/request_handler.h"
#include "grpcpp/grpcpp.h"

namespace pawl {

// Hands the request's bytes to `handler` and its answer's bytes to gRPC: protobuf would copy keys
// and values. The handler is told the call's deadline and whether the caller has gone. It must
// outlive the gRPC server. A call that its caller has cancelled before its message was there does
// not reach the handler.
grpc::ServerUnaryReactor* ServeRaw(RequestHandler& handler, const Clock& clock, Method method,
                                   grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_RAW_CALL_H_
