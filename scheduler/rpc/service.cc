#include "scheduler/rpc/service.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "client_lib/rpc/control_channel.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/security/admission/admitted_call.h"
#include "client_lib/security/peer.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/membership/registration_check.h"
#include "scheduler/rpc/caller_check.h"

namespace pawl {
namespace {

using Reactor = grpc::ServerUnaryReactor;
using Context = grpc::CallbackServerContext;

// gRPC's timer may fire a little before the deadline as this process reads it.
constexpr std::chrono::milliseconds kDeadlineSlack{20};

template <typename Response>
Reactor* AnswerNow(Context* context, absl::StatusOr<Response> answer, Response* response) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::Status status = answer.status();
  if (status.ok()) *response = *std::move(answer);
  reactor->Finish(ToGrpcStatus(status, context));
  return reactor;
}

// A call of an operator, for the audit log.
class AuditedCall {
 public:
  // `log` may be null.
  AuditedCall(AuditLog* log, const char* method) : log_(log), method_(method) {}

  void SetRequest(const google::protobuf::Message& request) {
    if (!google::protobuf::util::MessageToJsonString(request, &request_).ok()) request_.clear();
  }
  void Record(const Context& context, const absl::Status& result) const {
    if (log_ == nullptr) return;
    const std::optional<Peer> peer = PeerOf(context);
    log_->Write({.who = peer.has_value() ? peer->Describe() : "",
                 .from = context.peer(),
                 .method = method_,
                 .request = request_,
                 .result = result});
  }

 private:
  AuditLog* log_;
  const char* method_;
  std::string request_;
};

// A call that may wait in the Coordinator. gRPC runs OnCancel and OnDone only after the method
// handler has returned, so nothing here races with Suspend.
template <typename Response>
class PendingReactor final : public Reactor {
 public:
  PendingReactor(Coordinator& coordinator, Context* context, Response* response,
                 std::optional<AuditedCall> audited)
      : coordinator_(coordinator),
        context_(context),
        response_(response),
        audited_(std::move(audited)) {}

  template <typename Request>
  void Suspend(Ticket (Coordinator::*method)(const Request&, Done<Response>),
               const Request& request) {
    ticket_ = (coordinator_.*method)(request, [this](absl::StatusOr<Response> answer) {
      const absl::Status status = answer.status();
      if (status.ok()) *response_ = *std::move(answer);
      if (audited_.has_value()) audited_->Record(*context_, status);
      Finish(ToGrpcStatus(status, context_));
    });
  }

  void OnCancel() override {
    coordinator_.Cancel(ticket_,
                        std::chrono::system_clock::now() + kDeadlineSlack >= context_->deadline());
  }
  void OnDone() override { delete this; }

 private:
  Coordinator& coordinator_;
  Context* const context_;
  Response* const response_;
  const std::optional<AuditedCall> audited_;
  Ticket ticket_ = 0;
};

absl::Status NotServingYet() {
  return absl::UnavailableError(
      "the scheduler does not serve yet; if it is verifying the checkpoint that the job starts "
      "from, "
      "pawlctl status shows it");
}

// A request whose sender is the node that it names.
template <typename Request>
concept FromNode = requires(const Request& request) {
  request.node();
  request.incarnation();
};

absl::Status CheckCaller(const Coordinator&, const Context& context,
                         const RegisterRequest& request) {
  return CheckRegistrationIsOf(PeerOf(context), request);
}
template <FromNode Request>
absl::Status CheckCaller(Coordinator& coordinator, const Context& context, const Request& request) {
  if (request.node().empty()) return absl::OkStatus();
  if (absl::Status status = CheckNodeIsOf(PeerOf(context), request.node()); !status.ok()) {
    return status;
  }
  const auto ticket = context.client_metadata().find(kNodeTicketMetadata);
  const absl::string_view shown =
      ticket == context.client_metadata().end()
          ? ""
          : absl::string_view(ticket->second.data(), ticket->second.size());
  return coordinator.CheckNodeTicket(request.node(), request.incarnation(), shown);
}
template <typename Request>
absl::Status CheckCaller(const Coordinator&, const Context&, const Request&) {
  return absl::OkStatus();
}

template <typename Request, typename Response>
Reactor* Suspend(Coordinator* coordinator,
                 Ticket (Coordinator::*method)(const Request&, Done<Response>), Context* context,
                 const Request* request, Response* response,
                 std::optional<AuditedCall> audited = std::nullopt) {
  if (absl::Status refusal = RefusalOf(*context); !refusal.ok())
    return AnswerNow(context, absl::StatusOr<Response>(std::move(refusal)), response);
  if (audited.has_value()) audited->SetRequest(*request);
  absl::Status status =
      coordinator == nullptr ? NotServingYet() : CheckCaller(*coordinator, *context, *request);
  if (!status.ok()) {
    if (audited.has_value()) audited->Record(*context, status);
    return AnswerNow(context, absl::StatusOr<Response>(std::move(status)), response);
  }
  auto* const reactor =
      new PendingReactor<Response>(*coordinator, context, response, std::move(audited));
  reactor->Suspend(method, *request);
  return reactor;
}

}  // namespace

Reactor* SchedulerService::Register(Context* context, const RegisterRequest* request,
                                    RegisterResponse* response) {
  if (absl::Status status = CheckServerProtocol(*request); !status.ok()) {
    return AnswerNow(context, absl::StatusOr<RegisterResponse>(std::move(status)), response);
  }
  return Suspend(
      coordinator_,
      OnlyReads(PeerOf(*context)) ? &Coordinator::RegisterReader : &Coordinator::Register, context,
      request, response);
}

Reactor* SchedulerService::Heartbeat(Context* context, const HeartbeatRequest* request,
                                     HeartbeatResponse* response) {
  if (absl::Status refusal = RefusalOf(*context); !refusal.ok())
    return AnswerNow(context, absl::StatusOr<HeartbeatResponse>(std::move(refusal)), response);
  Coordinator* const coordinator = coordinator_;
  if (coordinator == nullptr)
    return AnswerNow(context, absl::StatusOr<HeartbeatResponse>(NotServingYet()), response);
  if (absl::Status status = CheckCaller(*coordinator, *context, *request); !status.ok())
    return AnswerNow(context, absl::StatusOr<HeartbeatResponse>(std::move(status)), response);
  return AnswerNow(context, coordinator->Heartbeat(*request), response);
}

Reactor* SchedulerService::GetRouting(Context* context, const GetRoutingRequest* request,
                                      RoutingTable* response) {
  return Suspend(coordinator_, &Coordinator::GetRouting, context, request, response);
}

Reactor* SchedulerService::ConfirmRouting(Context* context, const ConfirmRoutingRequest* request,
                                          ConfirmRoutingResponse* response) {
  return Suspend(coordinator_, &Coordinator::ConfirmRouting, context, request, response);
}

Reactor* SchedulerService::CreateTable(Context* context, const CreateTableRequest* request,
                                       CreateTableResponse* response) {
  return Suspend(coordinator_, &Coordinator::CreateTable, context, request, response);
}

Reactor* SchedulerService::ListTables(Context* context, const ListTablesRequest* request,
                                      ListTablesResponse* response) {
  return Suspend(coordinator_, &Coordinator::ListTables, context, request, response);
}

Reactor* SchedulerService::Barrier(Context* context, const BarrierRequest* request,
                                   BarrierResponse* response) {
  return Suspend(coordinator_, &Coordinator::Barrier, context, request, response);
}

Reactor* SchedulerService::GetAssignment(Context* context, const GetAssignmentRequest* request,
                                         GetAssignmentResponse* response) {
  return Suspend(coordinator_, &Coordinator::GetAssignment, context, request, response);
}

Reactor* SchedulerService::GiveUpRanks(Context* context, const GiveUpRanksRequest* request,
                                       GiveUpRanksResponse* response) {
  return Suspend(coordinator_, &Coordinator::GiveUpRanks, context, request, response);
}

Reactor* SchedulerService::JoinGroup(Context* context, const JoinGroupRequest* request,
                                     JoinGroupResponse* response) {
  return Suspend(coordinator_, &Coordinator::JoinGroup, context, request, response);
}

Reactor* SchedulerService::ExchangeInGroup(Context* context, const ExchangeInGroupRequest* request,
                                           ExchangeInGroupResponse* response) {
  return Suspend(coordinator_, &Coordinator::ExchangeInGroup, context, request, response);
}

Reactor* SchedulerService::WatchGroup(Context* context, const WatchGroupRequest* request,
                                      WatchGroupResponse* response) {
  return Suspend(coordinator_, &Coordinator::WatchGroup, context, request, response);
}

Reactor* SchedulerService::ReportEvaluation(Context* context,
                                            const ReportEvaluationRequest* request,
                                            ReportEvaluationResponse* response) {
  return Suspend(coordinator_, &Coordinator::ReportEvaluation, context, request, response);
}

Reactor* SchedulerService::AgreeOnData(Context* context, const AgreeOnDataRequest* request,
                                       AgreeOnDataResponse* response) {
  return Suspend(coordinator_, &Coordinator::AgreeOnData, context, request, response);
}

Reactor* SchedulerService::FinishWork(Context* context, const FinishWorkRequest* request,
                                      FinishWorkResponse* response) {
  return Suspend(coordinator_, &Coordinator::FinishWork, context, request, response);
}

Reactor* SchedulerService::GetStatus(Context* context, const GetStatusRequest*,
                                     GetStatusResponse* response) {
  if (absl::Status refusal = RefusalOf(*context); !refusal.ok())
    return AnswerNow(context, absl::StatusOr<GetStatusResponse>(std::move(refusal)), response);
  Coordinator* const coordinator = coordinator_;
  absl::StatusOr<GetStatusResponse> status =
      coordinator == nullptr ? status_before_() : coordinator->GetStatus();
  return AnswerNow(context, std::move(status), response);
}

Reactor* SchedulerService::Checkpoint(Context* context, const CheckpointRequest* request,
                                      CheckpointResponse* response) {
  AuditedCall audited(audit_, "Checkpoint");
  if (RefusalOf(*context).ok() && !request->dir().empty()) {
    if (absl::Status status = checkpoint_roots_.CheckName(request->dir()); !status.ok()) {
      audited.SetRequest(*request);
      audited.Record(*context, status);
      return AnswerNow(context, absl::StatusOr<CheckpointResponse>(std::move(status)), response);
    }
  }
  return Suspend(coordinator_, &Coordinator::Checkpoint, context, request, response,
                 std::move(audited));
}

Reactor* SchedulerService::Scale(Context* context, const ScaleRequest* request,
                                 ScaleResponse* response) {
  return Suspend(coordinator_, &Coordinator::Scale, context, request, response,
                 AuditedCall(audit_, "Scale"));
}

Reactor* SchedulerService::Drain(Context* context, const DrainRequest* request,
                                 DrainResponse* response) {
  return Suspend(coordinator_, &Coordinator::Drain, context, request, response,
                 AuditedCall(audit_, "Drain"));
}

Reactor* SchedulerService::ReleaseRetained(Context* context, const ReleaseRetainedRequest* request,
                                           ReleaseRetainedResponse* response) {
  return Suspend(coordinator_, &Coordinator::ReleaseRetained, context, request, response,
                 AuditedCall(audit_, "ReleaseRetained"));
}

Reactor* SchedulerService::ListEvents(Context* context, const ListEventsRequest* request,
                                      ListEventsResponse* response) {
  return Suspend(coordinator_, &Coordinator::ListEvents, context, request, response);
}

Reactor* SchedulerService::StopJob(Context* context, const StopJobRequest* request,
                                   StopJobResponse* response) {
  return Suspend(coordinator_, &Coordinator::StopJob, context, request, response,
                 AuditedCall(audit_, "StopJob"));
}

Reactor* SchedulerService::Goodbye(Context* context, const GoodbyeRequest* request,
                                   GoodbyeResponse* response) {
  return Suspend(coordinator_, &Coordinator::Goodbye, context, request, response);
}

}  // namespace pawl
