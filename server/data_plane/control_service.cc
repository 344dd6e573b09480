#include "server/data_plane/control_service.h"

#include <utility>

#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/security/admission/admitted_call.h"
#include "server/replication/replica_map.h"

namespace pawl {
namespace {

template <typename Response>
absl::Status Take(absl::StatusOr<Response> answer, Response* response) {
  PAWL_ASSIGN_OR_RETURN(*response, std::move(answer));
  return absl::OkStatus();
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

grpc::ServerUnaryReactor* ControlService::Answer(grpc::CallbackServerContext* context,
                                                 uint64_t job_id,
                                                 absl::FunctionRef<void(DataPlane::Done)> act) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto done = [context, reactor](const absl::Status& status) {
    reactor->Finish(ToGrpcStatus(status, context));
  };
  const absl::Status status = Check(*context, job_id);
  if (status.ok()) {
    act(done);
  } else {
    done(status);
  }
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::CreateTable(grpc::CallbackServerContext* context,
                                                      const CreateTableOnServerRequest* request,
                                                      CreateTableOnServerResponse*) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    data_plane_.CreateTable(request->routing_epoch(), request->table(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::Inspect(grpc::CallbackServerContext* context,
                                                  const InspectRequest* request,
                                                  InspectResponse* response) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    done(Take(data_plane_.Inspect(request->routing_epoch(), request->digest()), response));
  });
}

grpc::ServerUnaryReactor* ControlService::KeepBest(grpc::CallbackServerContext* context,
                                                   const KeepBestRequest* request,
                                                   KeepBestResponse*) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    data_plane_.KeepBest(request->routing_epoch(), request->step(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::RestoreBest(grpc::CallbackServerContext* context,
                                                      const RestoreBestRequest* request,
                                                      RestoreBestResponse*) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    data_plane_.RestoreBest(request->routing_epoch(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::ReleaseLogicalWorker(
    grpc::CallbackServerContext* context, const ReleaseLogicalWorkerRequest* request,
    ReleaseLogicalWorkerResponse*) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    data_plane_.ReleaseLogicalWorker(request->routing_epoch(), request->logical_worker(),
                                     request->incarnation(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::Fingerprint(grpc::CallbackServerContext* context,
                                                      const FingerprintRequest* request,
                                                      FingerprintResponse* response) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    done(Take(data_plane_.Fingerprint(request->routing_epoch()), response));
  });
}

grpc::ServerUnaryReactor* ControlService::Checkpoint(grpc::CallbackServerContext* context,
                                                     const CheckpointOnServerRequest* request,
                                                     CheckpointOnServerResponse* response) {
  return Answer(context, request->job_id(), [&](DataPlane::Done done) {
    checkpointer_.Checkpoint(*request,
                             [response, done = std::move(done)](
                                 absl::StatusOr<CheckpointOnServerResponse> answer) mutable {
                               done(Take(std::move(answer), response));
                             });
  });
}

grpc::ServerUnaryReactor* ControlService::LoadCheckpoint(grpc::CallbackServerContext* context,
                                                         const LoadCheckpointRequest* request,
                                                         LoadCheckpointResponse*) {
  return Answer(context, request->job_id(),
                [&](DataPlane::Done done) { checkpointer_.Load(*request, std::move(done)); });
}

}  // namespace pawl
