// The gRPC service of the data plane.
#ifndef PAWL_SERVER_PARAMETER_SERVICE_H_
#define PAWL_SERVER_PARAMETER_SERVICE_H_

#include "client_lib/base/clock.h"
#include "client_lib/rpc/request_handler.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter.grpc.pb.h"

namespace pawl {

// Hands the raw bytes of every call to a RequestHandler: protobuf would copy keys
// and values. Thread-safe. `handler` must outlive the gRPC server.
class ParameterService final
    : public Parameter::WithRawCallbackMethod_Push<Parameter::WithRawCallbackMethod_Pull<
          Parameter::WithRawCallbackMethod_EndStep<Parameter::WithRawCallbackMethod_TakeOver<Parameter::Service>>>> {
 public:
  ParameterService(RequestHandler& handler, const Clock& clock) : handler_(handler), clock_(clock) {}

  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* EndStep(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* TakeOver(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  grpc::ServerUnaryReactor* Serve(Method method, grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

  RequestHandler& handler_;
  const Clock& clock_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_PARAMETER_SERVICE_H_
