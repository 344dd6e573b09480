#include "client_lib/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"
#include "client_lib/session/check_items.h"
#include "client_lib/session/client_core.h"
#include "client_lib/session/scan_call.h"

namespace pawl {
namespace {

// Calls the scheduler and converts its answer to the caller's result.
template <typename Response, typename T, typename Request, typename Convert>
void CallScheduler(ClientCore& core, const char* method, Request request,
                   const CallOptions& options, absl::AnyInvocable<void(T)> done, Convert convert) {
  auto response = std::make_shared<Response>();
  const MonotonicTime deadline = core.Deadline(options);
  Callback counted =
      core.Count([response, done = std::move(done), convert](absl::Status status) mutable {
        if (status.ok()) {
          done(convert(*response));
        } else {
          done(T(std::move(status)));
        }
      });
  core.scheduler_calls().Call(method, std::make_shared<Request>(std::move(request)), response,
                              deadline, std::move(counted));
}

// Like CallScheduler, but first waits until all steps of `ranks` (empty: of all ranks of this
// process) have closed in every partition, because the scheduler uses the parameters after them.
template <typename Response, typename T, typename Request, typename Convert>
void CallSchedulerAfterSteps(ClientCore& core, absl::Span<const uint32_t> ranks, const char* method,
                             Request request, const CallOptions& options,
                             absl::AnyInvocable<void(T)> done, Convert convert) {
  const MonotonicTime deadline = core.Deadline(options);
  // Counted before the wait, so that closing the client waits for this call too.
  auto shared_done = std::make_shared<absl::AnyInvocable<void(T)>>(std::move(done));
  Callback counted = core.Count([shared_done](absl::Status status) {
    if (!status.ok()) (*shared_done)(T(std::move(status)));
  });
  core.step_closings().WhenClosed(
      ranks, deadline,
      [core = core.shared_from_this(), method, request = std::move(request), deadline, shared_done,
       convert, counted = std::move(counted)](absl::Status status) mutable {
        if (status.ok()) {
          CallScheduler<Response, T>(*core, method, std::move(request),
                                     {.timeout = deadline - core->clock().Now()},
                                     std::move(*shared_done), convert);
        }
        counted(std::move(status));
      });
}

// Fills in this process's node and present incarnation.
template <typename Request>
void SetSender(const ClientCore& core, Request& request) {
  const NodeLink::Identity now = core.newest_identity();
  request.set_node(now.node);
  request.set_incarnation(now.incarnation);
}

// The answer unchanged.
struct KeepResponse {
  template <typename Response>
  absl::StatusOr<Response> operator()(const Response& response) const {
    return response;
  }
};

struct DropResponse {
  template <typename Response>
  absl::Status operator()(const Response&) const {
    return absl::OkStatus();
  }
};

}  // namespace

std::future<absl::Status> Session::Push(absl::Span<const PushItem> items,
                                        const CallOptions& options) {
  std::future<absl::Status> result;
  Push(items, options, Fulfilling(result));
  return result;
}

std::future<absl::Status> Session::Assign(absl::Span<const AssignItem> items,
                                          const CallOptions& options) {
  std::future<absl::Status> result;
  Assign(items, options, Fulfilling(result));
  return result;
}

std::future<absl::Status> Session::Pull(absl::Span<const PullItem> items,
                                        const CallOptions& options) {
  std::future<absl::Status> result;
  Pull(items, options, Fulfilling(result));
  return result;
}

std::future<absl::Status> Session::PushPull(absl::Span<const PushItem> pushes,
                                            absl::Span<const PullItem> pulls,
                                            const CallOptions& options) {
  std::future<absl::Status> result;
  PushPull(pushes, pulls, options, Fulfilling(result));
  return result;
}

std::future<absl::Status> LogicalWorker::SetLearningRates(absl::Span<const LearningRateItem> items,
                                                          const CallOptions& options) {
  std::future<absl::Status> result;
  SetLearningRates(items, options, Fulfilling(result));
  return result;
}

std::future<absl::Status> LogicalWorker::EndStep(const CallOptions& options) {
  std::future<absl::Status> result;
  EndStep(options, Fulfilling(result));
  return result;
}

Client::Client(std::shared_ptr<Transport> transport, std::shared_ptr<ControlChannel> control,
               std::shared_ptr<ControlChannel> link, std::shared_ptr<ClientCore> core)
    : transport_(std::move(transport)),
      control_(std::move(control)),
      link_(std::move(link)),
      core_(std::move(core)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options,
                                                        std::shared_ptr<Transport> transport,
                                                        std::shared_ptr<ControlChannel> control,
                                                        std::shared_ptr<ControlChannel> link) {
  if (options.role != CLIENT_ROLE && options.role != WORKER_ROLE) {
    return absl::InvalidArgumentError(absl::StrCat("ClientOptions::role is ",
                                                   Role_Name(options.role),
                                                   "; it must be CLIENT_ROLE or WORKER_ROLE"));
  }
  if (options.max_bytes_in_flight == 0) {
    return absl::InvalidArgumentError("ClientOptions::max_bytes_in_flight must be at least 1");
  }
  if (link == nullptr) link = control;
  auto core = std::make_shared<ClientCore>(std::move(options), *transport, *control, *link);
  std::unique_ptr<Client> client(
      new Client(std::move(transport), std::move(control), std::move(link), core));
  PAWL_RETURN_IF_ERROR(core->Join());
  return client;
}

Client::~Client() { core_->Close(); }

const std::string& Client::node() const { return core_->registration().node(); }
uint64_t Client::incarnation() const { return core_->registration().incarnation(); }
uint64_t Client::job_id() const { return core_->registration().job_id(); }
MonotonicDuration Client::stall_timeout() const {
  return std::chrono::milliseconds(core_->registration().stall_timeout_ms());
}
const Job& Client::job() const { return core_->registration().job(); }
JobState Client::job_state() const { return core_->job_state(); }
absl::Status Client::status() const { return core_->failure(); }
bool Client::WaitForEnd(MonotonicDuration timeout) const { return core_->WaitForEnd(timeout); }

bool Client::leave_requested() const { return core_->leave_requested(); }
void Client::SetProgress(const WorkerProgress& progress) { core_->SetProgress(progress); }

absl::Status Client::LogMetric(const std::string& name, uint64_t step, double value) {
  return core_->LogMetric(name, step, value);
}

ClientCounters Client::counters() const {
  const MessengerCounters& from = core_->messenger().counters();
  const SegmentCounters& segments = core_->segment_counters();
  ClientCounters counters;
  counters.segments_accepted = segments.accepted;
  counters.segments_deduplicated = segments.deduplicated;
  counters.segments_late = segments.late;
  counters.messages = from.messages;
  counters.retries = from.retries;
  counters.routing_changes = from.routing_changes;
  return counters;
}

Session& Client::free_running() { return core_->free_running(); }

absl::StatusOr<LogicalWorker*> Client::OpenLogicalWorker(uint32_t rank, uint64_t first_step) {
  return core_->OpenLogicalWorker(core_->OwnRank(rank), first_step);
}

void Client::TakeOver(uint32_t rank, const CallOptions& options,
                      absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> done) {
  core_->TakeOver(core_->OwnRank(rank), options, std::move(done));
}

void Client::TakeOver(const LogicalWorkerAssignment& rank, const CallOptions& options,
                      absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> done) {
  core_->TakeOver(rank, options, std::move(done));
}

std::future<absl::StatusOr<LogicalWorker*>> Client::TakeOver(const LogicalWorkerAssignment& rank,
                                                             const CallOptions& options) {
  std::future<absl::StatusOr<LogicalWorker*>> result;
  TakeOver(rank, options, Fulfilling(result));
  return result;
}

std::future<absl::StatusOr<LogicalWorker*>> Client::TakeOver(uint32_t rank,
                                                             const CallOptions& options) {
  std::future<absl::StatusOr<LogicalWorker*>> result;
  TakeOver(rank, options, Fulfilling(result));
  return result;
}

void Client::CloseLogicalWorker(uint32_t rank) { core_->CloseLogicalWorker(rank); }

void Client::CreateTable(const TableSpec& spec, const CallOptions& options,
                         absl::AnyInvocable<void(absl::StatusOr<Table>)> done) {
  CreateTableRequest request;
  *request.mutable_table() = spec;
  CallScheduler<CreateTableResponse, absl::StatusOr<Table>>(
      *core_, "CreateTable", std::move(request), options, std::move(done),
      [](const CreateTableResponse& response) -> absl::StatusOr<Table> {
        return Table(response.table());
      });
}

std::future<absl::StatusOr<Table>> Client::CreateTable(const TableSpec& spec,
                                                       const CallOptions& options) {
  std::future<absl::StatusOr<Table>> result;
  CreateTable(spec, options, Fulfilling(result));
  return result;
}

void Client::OpenTable(const std::string& name, const CallOptions& options,
                       absl::AnyInvocable<void(absl::StatusOr<Table>)> done) {
  CallScheduler<ListTablesResponse, absl::StatusOr<Table>>(
      *core_, "ListTables", ListTablesRequest(), options, std::move(done),
      [name](const ListTablesResponse& response) -> absl::StatusOr<Table> {
        for (const TableSpec& spec : response.tables()) {
          if (spec.name() == name) return Table(spec);
        }
        return absl::NotFoundError(
            absl::StrCat("the job has no table '", name, "'; create it with CreateTable"));
      });
}

std::future<absl::StatusOr<Table>> Client::OpenTable(const std::string& name,
                                                     const CallOptions& options) {
  std::future<absl::StatusOr<Table>> result;
  OpenTable(name, options, Fulfilling(result));
  return result;
}

void Client::ListTables(const CallOptions& options,
                        absl::AnyInvocable<void(absl::StatusOr<std::vector<Table>>)> done) {
  CallScheduler<ListTablesResponse, absl::StatusOr<std::vector<Table>>>(
      *core_, "ListTables", ListTablesRequest(), options, std::move(done),
      [](const ListTablesResponse& response) -> absl::StatusOr<std::vector<Table>> {
        return std::vector<Table>(response.tables().begin(), response.tables().end());
      });
}

std::future<absl::StatusOr<std::vector<Table>>> Client::ListTables(const CallOptions& options) {
  std::future<absl::StatusOr<std::vector<Table>>> result;
  ListTables(options, Fulfilling(result));
  return result;
}

void Client::Scan(const ScanItem& item, const CallOptions& options,
                  absl::AnyInvocable<void(absl::StatusOr<ScanPage>)> done) {
  if (absl::Status refused = CheckItem(item, core_->router().current()->partitions());
      !refused.ok()) {
    return done(std::move(refused));
  }
  auto page = std::make_shared<ScanPage>();
  Callback counted = core_->Count([page, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) {
      done(*page);
    } else {
      done(std::move(status));
    }
  });
  RequestHeader header;
  header.set_job_id(core_->registration().job_id());
  std::make_shared<ScanCall>(core_, header, item, core_->Deadline(options), page,
                             std::move(counted))
      ->Send();
}

std::future<absl::StatusOr<ScanPage>> Client::Scan(const ScanItem& item,
                                                   const CallOptions& options) {
  std::future<absl::StatusOr<ScanPage>> result;
  Scan(item, options, Fulfilling(result));
  return result;
}

void Client::Barrier(const std::string& name, uint32_t parties, uint32_t party,
                     const CallOptions& options, Callback done) {
  BarrierRequest request;
  request.set_name(name);
  request.set_parties(parties);
  request.set_party(party);
  SetSender(*core_, request);
  CallScheduler<BarrierResponse, absl::Status>(*core_, "Barrier", std::move(request), options,
                                               std::move(done), DropResponse());
}

std::future<absl::Status> Client::Barrier(const std::string& name, uint32_t parties, uint32_t party,
                                          const CallOptions& options) {
  std::future<absl::Status> result;
  Barrier(name, parties, party, options, Fulfilling(result));
  return result;
}

std::future<absl::StatusOr<GetAssignmentResponse>> Client::Assignment(const CallOptions& options) {
  std::future<absl::StatusOr<GetAssignmentResponse>> result;
  Assignment(GetAssignmentRequest(), options, Fulfilling(result));
  return result;
}

void Client::Assignment(GetAssignmentRequest request, const CallOptions& options,
                        absl::AnyInvocable<void(absl::StatusOr<GetAssignmentResponse>)> done) {
  SetSender(*core_, request);
  CallScheduler<GetAssignmentResponse, absl::StatusOr<GetAssignmentResponse>>(
      *core_, "GetAssignment", std::move(request), options, std::move(done), KeepResponse());
}

std::future<absl::Status> Client::AgreeOnData(const DataFingerprint& data,
                                              const CallOptions& options) {
  std::future<absl::Status> result;
  AgreeOnDataRequest request;
  *request.mutable_data() = data;
  SetSender(*core_, request);
  CallScheduler<AgreeOnDataResponse, absl::Status>(*core_, "AgreeOnData", std::move(request),
                                                   options, Fulfilling(result), DropResponse());
  return result;
}

void Client::GiveUpRanks(GiveUpRanksRequest request, const CallOptions& options, Callback done) {
  SetSender(*core_, request);
  CallScheduler<GiveUpRanksResponse, absl::Status>(*core_, "GiveUpRanks", std::move(request),
                                                   options, std::move(done), DropResponse());
}

std::future<absl::Status> Client::GiveUpRanks(GiveUpRanksRequest request,
                                              const CallOptions& options) {
  std::future<absl::Status> result;
  GiveUpRanks(std::move(request), options, Fulfilling(result));
  return result;
}

std::future<absl::StatusOr<JoinGroupResponse>> Client::JoinGroup(JoinGroupRequest request,
                                                                 const CallOptions& options) {
  std::future<absl::StatusOr<JoinGroupResponse>> result;
  SetSender(*core_, request);
  CallScheduler<JoinGroupResponse, absl::StatusOr<JoinGroupResponse>>(
      *core_, "JoinGroup", std::move(request), options, Fulfilling(result), KeepResponse());
  return result;
}

std::future<absl::StatusOr<ExchangeInGroupResponse>> Client::ExchangeInGroup(
    ExchangeInGroupRequest request, const CallOptions& options) {
  std::future<absl::StatusOr<ExchangeInGroupResponse>> result;
  SetSender(*core_, request);
  CallScheduler<ExchangeInGroupResponse, absl::StatusOr<ExchangeInGroupResponse>>(
      *core_, "ExchangeInGroup", std::move(request), options, Fulfilling(result), KeepResponse());
  return result;
}

void Client::WatchGroup(WatchGroupRequest request, const CallOptions& options,
                        absl::AnyInvocable<void(absl::StatusOr<WatchGroupResponse>)> done) {
  SetSender(*core_, request);
  CallScheduler<WatchGroupResponse, absl::StatusOr<WatchGroupResponse>>(
      *core_, "WatchGroup", std::move(request), options, std::move(done), KeepResponse());
}

void Client::ReportEvaluation(
    ReportEvaluationRequest request, const CallOptions& options,
    absl::AnyInvocable<void(absl::StatusOr<ReportEvaluationResponse>)> done) {
  SetSender(*core_, request);
  const uint32_t ranks[] = {request.rank()};
  CallSchedulerAfterSteps<ReportEvaluationResponse, absl::StatusOr<ReportEvaluationResponse>>(
      *core_, ranks, "ReportEvaluation", std::move(request), options, std::move(done),
      KeepResponse());
}

std::future<absl::StatusOr<ReportEvaluationResponse>> Client::ReportEvaluation(
    ReportEvaluationRequest request, const CallOptions& options) {
  std::future<absl::StatusOr<ReportEvaluationResponse>> result;
  ReportEvaluation(std::move(request), options, Fulfilling(result));
  return result;
}

void Client::FinishWork(const WorkerProgress& progress, const CallOptions& options,
                        absl::Span<const uint32_t> ranks, Callback done) {
  FinishWorkRequest request;
  SetSender(*core_, request);
  *request.mutable_progress() = progress;
  // There may be no later heartbeat to carry them.
  core_->AddMetrics(*request.mutable_progress());
  request.mutable_logical_workers()->Assign(ranks.begin(), ranks.end());
  Callback acknowledging = [core = core_, reported = request.progress(),
                            done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) core->AcknowledgeMetrics(reported);
    done(std::move(status));
  };
  // A failure ends the job: do not wait for open steps.
  if (!progress.failure().empty()) {
    return CallScheduler<FinishWorkResponse, absl::Status>(*core_, "FinishWork", std::move(request),
                                                           options, std::move(acknowledging),
                                                           DropResponse());
  }
  CallSchedulerAfterSteps<FinishWorkResponse, absl::Status>(
      *core_, ranks, "FinishWork", std::move(request), options, std::move(acknowledging),
      DropResponse());
}

std::future<absl::Status> Client::FinishWork(const WorkerProgress& progress,
                                             const CallOptions& options,
                                             absl::Span<const uint32_t> ranks) {
  std::future<absl::Status> result;
  FinishWork(progress, options, ranks, Fulfilling(result));
  return result;
}

void Client::GetStatus(const CallOptions& options,
                       absl::AnyInvocable<void(absl::StatusOr<GetStatusResponse>)> done) {
  CallScheduler<GetStatusResponse, absl::StatusOr<GetStatusResponse>>(
      *core_, "GetStatus", GetStatusRequest(), options, std::move(done), KeepResponse());
}

std::future<absl::StatusOr<GetStatusResponse>> Client::GetStatus(const CallOptions& options) {
  std::future<absl::StatusOr<GetStatusResponse>> result;
  GetStatus(options, Fulfilling(result));
  return result;
}

}  // namespace pawl
