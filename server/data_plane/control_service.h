// The gRPC service through which the scheduler controls this server.
#ifndef PAWL_SERVER_DATA_PLANE_CONTROL_SERVICE_H_
#define PAWL_SERVER_DATA_PLANE_CONTROL_SERVICE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/server_control.grpc.pb.h"
#include "server/data_plane/checkpointer.h"
#include "server/data_plane/data_plane.h"

namespace pawl {

// Thread-safe. `data_plane` and `checkpointer` must outlive the gRPC server.
class ControlService final : public ServerControl::CallbackService {
 public:
  ControlService(DataPlane& data_plane, Checkpointer& checkpointer)
      : data_plane_(data_plane), checkpointer_(checkpointer) {}

  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* context,
                                        const CreateTableOnServerRequest* request,
                                        CreateTableOnServerResponse* response) override;
  grpc::ServerUnaryReactor* Inspect(grpc::CallbackServerContext* context,
                                    const InspectRequest* request,
                                    InspectResponse* response) override;
  grpc::ServerUnaryReactor* KeepBest(grpc::CallbackServerContext* context,
                                     const KeepBestRequest* request,
                                     KeepBestResponse* response) override;
  grpc::ServerUnaryReactor* RestoreBest(grpc::CallbackServerContext* context,
                                        const RestoreBestRequest* request,
                                        RestoreBestResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseLogicalWorker(grpc::CallbackServerContext* context,
                                                 const ReleaseLogicalWorkerRequest* request,
                                                 ReleaseLogicalWorkerResponse* response) override;
  grpc::ServerUnaryReactor* Fingerprint(grpc::CallbackServerContext* context,
                                        const FingerprintRequest* request,
                                        FingerprintResponse* response) override;
  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const CheckpointOnServerRequest* request,
                                       CheckpointOnServerResponse* response) override;
  grpc::ServerUnaryReactor* LoadCheckpoint(grpc::CallbackServerContext* context,
                                           const LoadCheckpointRequest* request,
                                           LoadCheckpointResponse* response) override;

 private:
  // OK if the call is within the quota of its peer, and for this server's job.
  absl::Status Check(const grpc::CallbackServerContext& context, uint64_t job_id) const;
  // Calls `act` if Check accepts the call. `done` finishes the call on the thread that has the
  // answer, possibly before the handler returns.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, uint64_t job_id,
                                   absl::FunctionRef<void(DataPlane::Done done)> act);

  DataPlane& data_plane_;
  Checkpointer& checkpointer_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_CONTROL_SERVICE_H_
