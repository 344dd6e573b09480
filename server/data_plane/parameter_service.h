// The gRPC service of the data plane.
#ifndef PAWL_SERVER_DATA_PLANE_PARAMETER_SERVICE_H_
#define PAWL_SERVER_DATA_PLANE_PARAMETER_SERVICE_H_

#include "client_lib/base/clock.h"
#include "client_lib/rpc/request_handler.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter.grpc.pb.h"
#include "server/data_plane/raw_call.h"

namespace pawl {

// Hands every call to a RequestHandler. Thread-safe. `handler` must outlive the gRPC server.
class ParameterService final
    : public Parameter::WithRawCallbackMethod_Push<
          Parameter::WithRawCallbackMethod_Pull<Parameter::WithRawCallbackMethod_EndStep<
              Parameter::WithRawCallbackMethod_TakeOver<Parameter::Service>>>> {
 public:
  ParameterService(RequestHandler& handler, const Clock& clock)
      : handler_(handler), clock_(clock) {}

  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kPush, context, request, response);
  }
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kPull, context, request, response);
  }
  grpc::ServerUnaryReactor* EndStep(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kEndStep, context, request, response);
  }
  grpc::ServerUnaryReactor* TakeOver(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kTakeOver, context, request, response);
  }

 private:
  RequestHandler& handler_;
  const Clock& clock_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_PARAMETER_SERVICE_H_
