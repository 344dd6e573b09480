// The Scheduler service on gRPC.
#ifndef PAWL_SCHEDULER_RPC_SERVICE_H_
#define PAWL_SCHEDULER_RPC_SERVICE_H_

#include <atomic>
#include <functional>
#include <utility>

#include "client_lib/security/allowed_folders.h"
#include "client_lib/security/audit_log.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/job/coordinator.h"

namespace pawl {

// Passes requests to the Coordinator and its answers back. An rpc that waits uses no thread: its
// reactor is pending in the Coordinator, and OnCancel (the caller is gone, or its deadline has
// passed) removes it. Until Begin only GetStatus is answered; everything else is UNAVAILABLE.
// Thread-safe.
class SchedulerService final : public Scheduler::CallbackService {
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

 public:
  // `status_before` answers GetStatus until Begin, on any thread; its error is the answer too.
  explicit SchedulerService(std::function<absl::StatusOr<GetStatusResponse>()> status_before)
      : status_before_(std::move(status_before)) {}
  // Serves `coordinator` at once.
  explicit SchedulerService(Coordinator& coordinator) : coordinator_(&coordinator) {}

  // Records what operators do from now on. `audit` outlives this. REQUIRES: no rpc has come yet.
  void SetAuditLog(AuditLog* audit) { audit_ = audit; }

  // Operators get checkpoints only in these folders. REQUIRES: no rpc has come yet.
  void SetCheckpointRoots(AllowedFolders roots) { checkpoint_roots_ = std::move(roots); }

  // Serves `coordinator`, which outlives the rpcs of the gRPC server.
  void Begin(Coordinator& coordinator) { coordinator_ = &coordinator; }

  Reactor* Register(Context* context, const RegisterRequest* request,
                    RegisterResponse* response) override;
  Reactor* Heartbeat(Context* context, const HeartbeatRequest* request,
                     HeartbeatResponse* response) override;
  Reactor* GetRouting(Context* context, const GetRoutingRequest* request,
                      RoutingTable* response) override;
  Reactor* ConfirmRouting(Context* context, const ConfirmRoutingRequest* request,
                          ConfirmRoutingResponse* response) override;
  Reactor* CreateTable(Context* context, const CreateTableRequest* request,
                       CreateTableResponse* response) override;
  Reactor* ListTables(Context* context, const ListTablesRequest* request,
                      ListTablesResponse* response) override;
  Reactor* Barrier(Context* context, const BarrierRequest* request,
                   BarrierResponse* response) override;
  Reactor* GetAssignment(Context* context, const GetAssignmentRequest* request,
                         GetAssignmentResponse* response) override;
  Reactor* GiveUpRanks(Context* context, const GiveUpRanksRequest* request,
                       GiveUpRanksResponse* response) override;
  Reactor* JoinGroup(Context* context, const JoinGroupRequest* request,
                     JoinGroupResponse* response) override;
  Reactor* ExchangeInGroup(Context* context, const ExchangeInGroupRequest* request,
                           ExchangeInGroupResponse* response) override;
  Reactor* WatchGroup(Context* context, const WatchGroupRequest* request,
                      WatchGroupResponse* response) override;
  Reactor* ReportEvaluation(Context* context, const ReportEvaluationRequest* request,
                            ReportEvaluationResponse* response) override;
  Reactor* AgreeOnData(Context* context, const AgreeOnDataRequest* request,
                       AgreeOnDataResponse* response) override;
  Reactor* FinishWork(Context* context, const FinishWorkRequest* request,
                      FinishWorkResponse* response) override;
  Reactor* GetStatus(Context* context, const GetStatusRequest* request,
                     GetStatusResponse* response) override;
  Reactor* Checkpoint(Context* context, const CheckpointRequest* request,
                      CheckpointResponse* response) override;
  Reactor* Scale(Context* context, const ScaleRequest* request, ScaleResponse* response) override;
  Reactor* Drain(Context* context, const DrainRequest* request, DrainResponse* response) override;
  Reactor* ReleaseRetained(Context* context, const ReleaseRetainedRequest* request,
                           ReleaseRetainedResponse* response) override;
  Reactor* ListEvents(Context* context, const ListEventsRequest* request,
                      ListEventsResponse* response) override;
  Reactor* StopJob(Context* context, const StopJobRequest* request,
                   StopJobResponse* response) override;
  Reactor* Goodbye(Context* context, const GoodbyeRequest* request,
                   GoodbyeResponse* response) override;

 private:
  // May be null.
  AuditLog* audit_ = nullptr;
  AllowedFolders checkpoint_roots_;
  const std::function<absl::StatusOr<GetStatusResponse>()> status_before_;
  // Null until Begin.
  std::atomic<Coordinator*> coordinator_ = nullptr;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_SERVICE_H_
