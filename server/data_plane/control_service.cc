#include "server/data_plane/control_service.h"

#include <utility>

#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/security/admission/admitted_call.h"
#include "server/replication/replica_map.h"

namespace pawl {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status, context));
  return reactor;
}

// Finishes the call on the thread that has the answer, possibly before the handler returns.
DataPlane::Done Finisher(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor) {
  return
      [context, reactor](absl::Status status) { reactor->Finish(ToGrpcStatus(status, context)); };
}

}  // namespace

absl::Status ControlService::Check(const grpc::CallbackServerContext& context,
                                   uint64_t job_id) const {
  PAWL_RETURN_IF_ERROR(RefusalOf(context));
  const uint64_t own = data_plane_.job_id();
  // The scheduler's call may overtake its own answer to this server's registration.
  if (own == 0) return absl::UnavailableError("this server does not know its job yet");
  if (job_id == own) return absl::OkStatus();
  return WrongJob(job_id);
}

grpc::ServerUnaryReactor* ControlService::CreateTable(grpc::CallbackServerContext* context,
                                                      const CreateTableOnServerRequest* request,
                                                      CreateTableOnServerResponse*) {
  const absl::Status status = Check(*context, request->job_id());
  if (!status.ok()) return Finish(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  data_plane_.CreateTable(request->routing_epoch(), request->table(), Finisher(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Inspect(grpc::CallbackServerContext* context,
                                                  const InspectRequest* request,
                                                  InspectResponse* response) {
  absl::Status status = Check(*context, request->job_id());
  if (status.ok()) {
    auto answer = data_plane_.Inspect(request->routing_epoch(), request->digest());
    status = answer.status();
    if (status.ok()) *response = *std::move(answer);
  }
  return Finish(context, status);
}

grpc::ServerUnaryReactor* ControlService::KeepBest(grpc::CallbackServerContext* context,
                                                   const KeepBestRequest* request,
                                                   KeepBestResponse*) {
  const absl::Status status = Check(*context, request->job_id());
  if (!status.ok()) return Finish(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  data_plane_.KeepBest(request->routing_epoch(), request->step(), Finisher(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::RestoreBest(grpc::CallbackServerContext* context,
                                                      const RestoreBestRequest* request,
                                                      RestoreBestResponse*) {
  const absl::Status status = Check(*context, request->job_id());
  if (!status.ok()) return Finish(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  data_plane_.RestoreBest(request->routing_epoch(), Finisher(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::ReleaseLogicalWorker(
    grpc::CallbackServerContext* context, const ReleaseLogicalWorkerRequest* request,
    ReleaseLogicalWorkerResponse*) {
  const absl::Status status = Check(*context, request->job_id());
  if (!status.ok()) return Finish(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  data_plane_.ReleaseLogicalWorker(request->routing_epoch(), request->logical_worker(),
                                   request->incarnation(), Finisher(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Fingerprint(grpc::CallbackServerContext* context,
                                                      const FingerprintRequest* request,
                                                      FingerprintResponse* response) {
  absl::Status status = Check(*context, request->job_id());
  if (status.ok()) {
    auto answer = data_plane_.Fingerprint(request->routing_epoch());
    status = answer.status();
    if (status.ok()) *response = *std::move(answer);
  }
  return Finish(context, status);
}

grpc::ServerUnaryReactor* ControlService::Checkpoint(grpc::CallbackServerContext* context,
                                                     const CheckpointOnServerRequest* request,
                                                     CheckpointOnServerResponse* response) {
  const absl::Status status = Check(*context, request->job_id());
  if (!status.ok()) return Finish(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  checkpointer_.Checkpoint(
      *request, [context, reactor, response](absl::StatusOr<CheckpointOnServerResponse> answer) {
        const absl::Status status = answer.status();
        if (status.ok()) *response = *std::move(answer);
        reactor->Finish(ToGrpcStatus(status, context));
      });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::LoadCheckpoint(grpc::CallbackServerContext* context,
                                                         const LoadCheckpointRequest* request,
                                                         LoadCheckpointResponse*) {
  const absl::Status status = Check(*context, request->job_id());
  if (!status.ok()) return Finish(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  checkpointer_.Load(*request, Finisher(context, reactor));
  return reactor;
}

}  // namespace pawl
