// The gRPC services Parameter and Replication, whose messages protobuf does not parse.
#ifndef PAWL_SERVER_DATA_PLANE_RAW_SERVICES_H_
#define PAWL_SERVER_DATA_PLANE_RAW_SERVICES_H_

#include "client_lib/base/clock.h"
#include "client_lib/rpc/request_handler.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter.grpc.pb.h"
#include "proto/replication.grpc.pb.h"

namespace pawl {

// Both services pass the request's bytes to `handler` and its answer's bytes to gRPC, because
// protobuf would copy keys and values. The handler gets the call's deadline and a flag that is set
// when the caller has gone. A call that is cancelled before its message arrives does not reach the
// handler. Thread-safe. `handler` and `clock` must outlive the gRPC server.

// Called by workers and clients.
class ParameterService final
    : public Parameter::WithRawCallbackMethod_Push<
          Parameter::WithRawCallbackMethod_Pull<Parameter::WithRawCallbackMethod_EndStep<
              Parameter::WithRawCallbackMethod_TakeOver<Parameter::Service>>>> {
 public:
  ParameterService(RequestHandler& handler, const Clock& clock)
      : handler_(handler), clock_(clock) {}

  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* EndStep(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* TakeOver(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  RequestHandler& handler_;
  const Clock& clock_;
};

// Called by the primaries on other servers.
class ReplicationService final
    : public Replication::WithRawCallbackMethod_Replicate<
          Replication::WithRawCallbackMethod_InstallSnapshot<
              Replication::WithRawCallbackMethod_GoBack<Replication::Service>>> {
 public:
  ReplicationService(RequestHandler& handler, const Clock& clock)
      : handler_(handler), clock_(clock) {}

  grpc::ServerUnaryReactor* Replicate(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* InstallSnapshot(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GoBack(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;

 private:
  RequestHandler& handler_;
  const Clock& clock_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_RAW_SERVICES_H_
