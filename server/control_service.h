// The gRPC service by which the scheduler directs this server.
#ifndef PAWL_SERVER_CONTROL_SERVICE_H_
#define PAWL_SERVER_CONTROL_SERVICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/server_control.grpc.pb.h"
#include "server/data_plane.h"

namespace pawl {

// Thread-safe. `data_plane` must outlive the gRPC server.
class ControlService final : public ServerControl::CallbackService {
 public:
  explicit ControlService(DataPlane& data_plane) : data_plane_(data_plane) {}

  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* context,
                                        const CreateTableOnServerRequest* request,
                                        CreateTableOnServerResponse* response) override;
  grpc::ServerUnaryReactor* Inspect(grpc::CallbackServerContext* context, const InspectRequest* request,
                                    InspectResponse* response) override;
  grpc::ServerUnaryReactor* KeepBest(grpc::CallbackServerContext* context, const KeepBestRequest* request,
                                     KeepBestResponse* response) override;
  grpc::ServerUnaryReactor* RestoreBest(grpc::CallbackServerContext* context, const RestoreBestRequest* request,
                                        RestoreBestResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseLogicalWorker(grpc::CallbackServerContext* context,
                                                 const ReleaseLogicalWorkerRequest* request,
                                                 ReleaseLogicalWorkerResponse* response) override;
  grpc::ServerUnaryReactor* Fingerprint(grpc::CallbackServerContext* context, const FingerprintRequest* request,
                                        FingerprintResponse* response) override;

 private:
  absl::Status CheckJob(uint64_t job_id) const;

  DataPlane& data_plane_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_CONTROL_SERVICE_H_
