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

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const RegisterRequest* request,
                                     RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const HeartbeatRequest* request,
                                      HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* GetRouting(grpc::CallbackServerContext* context,
                                       const GetRoutingRequest* request,
                                       RoutingTable* response) override;
  grpc::ServerUnaryReactor* ConfirmRouting(grpc::CallbackServerContext* context,
                                           const ConfirmRoutingRequest* request,
                                           ConfirmRoutingResponse* response) override;
  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* context,
                                        const CreateTableRequest* request,
                                        CreateTableResponse* response) override;
  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context,
                                       const ListTablesRequest* request,
                                       ListTablesResponse* response) override;
  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context,
                                    const BarrierRequest* request,
                                    BarrierResponse* response) override;
  grpc::ServerUnaryReactor* GetAssignment(grpc::CallbackServerContext* context,
                                          const GetAssignmentRequest* request,
                                          GetAssignmentResponse* response) override;
  grpc::ServerUnaryReactor* GiveUpRanks(grpc::CallbackServerContext* context,
                                        const GiveUpRanksRequest* request,
                                        GiveUpRanksResponse* response) override;
  grpc::ServerUnaryReactor* JoinGroup(grpc::CallbackServerContext* context,
                                      const JoinGroupRequest* request,
                                      JoinGroupResponse* response) override;
  grpc::ServerUnaryReactor* ExchangeInGroup(grpc::CallbackServerContext* context,
                                            const ExchangeInGroupRequest* request,
                                            ExchangeInGroupResponse* response) override;
  grpc::ServerUnaryReactor* WatchGroup(grpc::CallbackServerContext* context,
                                       const WatchGroupRequest* request,
                                       WatchGroupResponse* response) override;
  grpc::ServerUnaryReactor* ReportEvaluation(grpc::CallbackServerContext* context,
                                             const ReportEvaluationRequest* request,
                                             ReportEvaluationResponse* response) override;
  grpc::ServerUnaryReactor* AgreeOnData(grpc::CallbackServerContext* context,
                                        const AgreeOnDataRequest* request,
                                        AgreeOnDataResponse* response) override;
  grpc::ServerUnaryReactor* FinishWork(grpc::CallbackServerContext* context,
                                       const FinishWorkRequest* request,
                                       FinishWorkResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const GetStatusRequest* request,
                                      GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const CheckpointRequest* request,
                                       CheckpointResponse* response) override;
  grpc::ServerUnaryReactor* Scale(grpc::CallbackServerContext* context, const ScaleRequest* request,
                                  ScaleResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const DrainRequest* request,
                                  DrainResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseRetained(grpc::CallbackServerContext* context,
                                            const ReleaseRetainedRequest* request,
                                            ReleaseRetainedResponse* response) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const ListEventsRequest* request,
                                       ListEventsResponse* response) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const StopJobRequest* request,
                                    StopJobResponse* response) override;
  grpc::ServerUnaryReactor* Goodbye(grpc::CallbackServerContext* context,
                                    const GoodbyeRequest* request,
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
