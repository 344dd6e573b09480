#include "server/control_service.h"

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc_status.h"

namespace pawl {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

absl::Status ControlService::CheckJob(uint64_t job_id) const {
  const uint64_t own = data_plane_.job_id();
  // The scheduler may be quicker than its own answer to this server's registration.
  if (own == 0) return absl::UnavailableError("this server does not know its job yet");
  if (job_id == own) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("job_id ", job_id, " is not that of the job of this server"));
}

grpc::ServerUnaryReactor* ControlService::CreateTable(grpc::CallbackServerContext* context,
                                                      const CreateTableOnServerRequest* request,
                                                      CreateTableOnServerResponse*) {
  absl::Status status = CheckJob(request->job_id());
  if (status.ok()) status = data_plane_.CreateTable(request->table());
  return Finish(context, status);
}

grpc::ServerUnaryReactor* ControlService::Inspect(grpc::CallbackServerContext* context, const InspectRequest* request,
                                                  InspectResponse* response) {
  const absl::Status status = CheckJob(request->job_id());
  if (status.ok()) *response = data_plane_.Inspect(request->digest());
  return Finish(context, status);
}

grpc::ServerUnaryReactor* ControlService::KeepBest(grpc::CallbackServerContext* context,
                                                   const KeepBestRequest* request, KeepBestResponse*) {
  const absl::Status status = CheckJob(request->job_id());
  if (status.ok()) data_plane_.KeepBest(request->evaluation());
  return Finish(context, status);
}

grpc::ServerUnaryReactor* ControlService::RestoreBest(grpc::CallbackServerContext* context,
                                                      const RestoreBestRequest* request, RestoreBestResponse*) {
  const absl::Status status = CheckJob(request->job_id());
  if (status.ok()) data_plane_.RestoreBest();
  return Finish(context, status);
}

}  // namespace pawl
