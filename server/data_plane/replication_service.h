// The gRPC service that other servers' primaries call.
#ifndef PAWL_SERVER_DATA_PLANE_REPLICATION_SERVICE_H_
#define PAWL_SERVER_DATA_PLANE_REPLICATION_SERVICE_H_

#include "client_lib/base/clock.h"
#include "client_lib/rpc/request_handler.h"
#include "grpcpp/grpcpp.h"
#include "proto/replication.grpc.pb.h"
#include "server/data_plane/raw_call.h"

namespace pawl {

// Hands every call to a RequestHandler. Thread-safe. `handler` must outlive the gRPC server.
class ReplicationService final
    : public Replication::WithRawCallbackMethod_Replicate<
          Replication::WithRawCallbackMethod_InstallSnapshot<
              Replication::WithRawCallbackMethod_GoBack<Replication::Service>>> {
 public:
  ReplicationService(RequestHandler& handler, const Clock& clock)
      : handler_(handler), clock_(clock) {}

  grpc::ServerUnaryReactor* Replicate(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kReplicate, context, request, response);
  }
  grpc::ServerUnaryReactor* InstallSnapshot(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kInstallSnapshot, context, request, response);
  }
  grpc::ServerUnaryReactor* GoBack(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return ServeRaw(handler_, clock_, Method::kGoBack, context, request, response);
  }

 private:
  RequestHandler& handler_;
  const Clock& clock_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_REPLICATION_SERVICE_H_
