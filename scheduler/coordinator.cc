#include "scheduler/coordinator.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_validation.h"
#include "scheduler/digest.h"
#include "scheduler/placement.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxStopReasonBytes = 256;
// A failure may quote a worker or a server; every heartbeat's answer carries it to the others.
constexpr size_t kMaxFailureBytes = 1024;

template <typename Response>
void AnswerNow(Done<Response> done, absl::StatusOr<Response> answer, DeferredActions& actions) {
  actions.Add([done = std::move(done), answer = std::move(answer)]() mutable { done(std::move(answer)); });
}

Membership::Options MembershipOptions(const Coordinator::Options& options) {
  Membership::Options membership;
  membership.lease = options.lease;
  membership.max_servers = std::min(options.servers, kMaxServers);
  // Workers with ranks of their own choice come whenever they like; each has at least one.
  membership.max_workers =
      IsServeOnly(options.job) ? kMaxWorkers
                               : std::min(std::max(options.workers, options.job.logical_workers()), kMaxWorkers);
  return membership;
}

std::string EvaluationText(const EvaluationResult& result) {
  std::string text = absl::StrCat("evaluation ", result.evaluation(), " at step ", result.step(), ", ",
                                  result.samples(), " samples:");
  if (result.has_auc()) absl::StrAppend(&text, absl::StrFormat(" auc %.5f", result.auc()));
  if (result.has_logloss()) absl::StrAppend(&text, absl::StrFormat(" logloss %.5f", result.logloss()));
  if (result.has_accuracy()) absl::StrAppend(&text, absl::StrFormat(" accuracy %.5f", result.accuracy()));
  if (result.has_rmse()) absl::StrAppend(&text, absl::StrFormat(" rmse %.5f", result.rmse()));
  return text;
}

void AddCounters(const ServerCounters& from, ServerCounters& to) {
  to.set_pushes_applied(to.pushes_applied() + from.pushes_applied());
  to.set_pushes_deduplicated(to.pushes_deduplicated() + from.pushes_deduplicated());
  to.set_pushes_late(to.pushes_late() + from.pushes_late());
  to.set_requests_refused(to.requests_refused() + from.requests_refused());
  to.set_staleness_max(std::max(to.staleness_max(), from.staleness_max()));
  to.set_rows(to.rows() + from.rows());
  to.set_parameter_bytes(to.parameter_bytes() + from.parameter_bytes());
  to.set_parked_pulls(to.parked_pulls() + from.parked_pulls());
  to.set_keys_pulled(to.keys_pulled() + from.keys_pulled());
  to.set_keys_pushed(to.keys_pushed() + from.keys_pushed());
}

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, ServerCaller& servers)
    : options_(std::move(options)),
      serve_only_(IsServeOnly(options_.job)),
      early_stopping_(options_.job.evaluation().has_early_stopping()),
      clock_(clock),
      servers_(servers),
      created_(clock.Now()),
      last_tick_(created_),
      membership_(MembershipOptions(options_)),
      routing_(options_.job_id, options_.job.partitions()),
      logical_workers_(options_.job.logical_workers(), options_.workers),
      finished_ranks_(options_.job.logical_workers()),
      tables_(options_.job),
      collector_(options_.job.logical_workers(), options_.job.model().loss()),
      early_stopping_policy_(options_.job.evaluation().early_stopping()) {}

// Membership ------------------------------------------------------------------

absl::StatusOr<RegisterResponse> Coordinator::Register(const RegisterRequest& request) {
  DeferredActions actions;
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(state_.CheckNotOver());
  const std::vector<uint32_t> wishes(request.logical_workers().begin(), request.logical_workers().end());
  if (request.role() == WORKER_ROLE && membership_.FindProcess(request.process_nonce()) == nullptr) {
    PAWL_RETURN_IF_ERROR(logical_workers_.CheckWishes(wishes));
  }
  PAWL_ASSIGN_OR_RETURN(const Membership::Registration registration, membership_.Register(request, clock_.Now()));
  const Node& node = *registration.node;

  RegisterResponse response;
  response.set_node(node.name);
  response.set_incarnation(node.incarnation);
  response.set_job_id(options_.job_id);
  *response.mutable_job() = options_.job;
  response.set_heartbeat_interval_ms(static_cast<uint32_t>(options_.heartbeat_interval.count()));
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_client(node.client);
  if (!registration.is_new) return response;

  spdlog::info("node joined: {} incarnation {}", NodeText(node), node.incarnation);
  if (node.role == SERVER_ROLE) PublishRoutingIfServersAreThere(actions);
  if (node.role == WORKER_ROLE) {
    logical_workers_.Join(node.name, wishes);
    AnswerAssignments(actions);
  }
  StartIfAllAreThere();
  return response;
}

absl::StatusOr<HeartbeatResponse> Coordinator::Heartbeat(const HeartbeatRequest& request) {
  DeferredActions actions;
  MutexLock lock(mu_);
  PAWL_ASSIGN_OR_RETURN(const Node* const node, membership_.Heartbeat(request, clock_.Now()));
  if (!node->progress.failure().empty()) FailJob(absl::StrCat(NodeText(*node), ": ", node->progress.failure()), actions);
  HeartbeatResponse response;
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_routing_epoch(routing_.epoch());
  response.set_job_state(state_.state());
  response.set_failure(state_.reason());
  return response;
}

absl::StatusOr<GoodbyeResponse> Coordinator::Goodbye(const GoodbyeRequest& request) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const absl::StatusOr<Node*> found = membership_.Find(request.node(), request.incarnation());
  std::optional<Node> leaving;
  if (found.ok()) leaving = **found;
  PAWL_RETURN_IF_ERROR(membership_.Leave(request.node(), request.incarnation()));
  if (leaving.has_value()) {
    spdlog::info("node left: {}", NodeText(*leaving));
    NodeIsGone(*leaving, absl::StrCat("left while the job was ", JobState_Name(state_.state())), /*dead=*/false,
               actions);
  }
  return GoodbyeResponse();
}

void Coordinator::NodeIsGone(const Node& node, absl::string_view how, bool dead, DeferredActions& actions) {
  if (state_.over()) return;
  for (const Barriers::Failure& failure : barriers_.FailNode(node.name, how)) {
    spdlog::warn("{}", failure.status.ToString());
    barrier_calls_.AnswerIf([&](const BarrierParty& party) { return party.barrier == failure.name; }, failure.status,
                            actions);
  }
  switch (node.role) {
    case SERVER_ROLE:
      // Before it holds any partition, another one may take its place.
      if (dead || routing_.published()) FailJob(absl::StrCat(NodeText(node), " ", how), actions);
      break;
    case WORKER_ROLE:
      if (node.finished) break;
      if (dead || (!serve_only_ && logical_workers_.decided())) {
        FailJob(absl::StrCat(NodeText(node), " ", how), actions);
      } else {
        logical_workers_.Leave(node.name);
        assignment_calls_.AnswerIf([&](const std::string& worker) { return worker == node.name; },
                                   absl::AbortedError(absl::StrCat(node.name, " has left")), actions);
      }
      break;
    default:
      break;
  }
}

void Coordinator::Tick() {
  DeferredActions actions;
  MutexLock lock(mu_);
  const MonotonicTime now = clock_.Now();
  // If this process did not run, heartbeats lie unread; nobody is dead for that.
  const MonotonicDuration gap = now - last_tick_;
  last_tick_ = now;
  if (gap > options_.lease / 2) {
    spdlog::warn("the scheduler did not run for {:.3f} s; leases are extended by it", Seconds(gap));
    membership_.ExtendLeases(gap);
  }
  for (const Node& node : membership_.ExpireLeases(now)) {
    const std::string how = absl::StrFormat("died: no heartbeat for %.1f s", Seconds(now - node.last_heard));
    spdlog::warn("node died: {} {}", NodeText(node), how);
    NodeIsGone(node, how, /*dead=*/true, actions);
  }
  if (state_.state() == STARTING && now - created_ > options_.start_timeout) {
    std::vector<std::string> there;
    for (const Node* node : membership_.All()) {
      if (!node->gone) there.push_back(NodeText(*node));
    }
    FailJob(absl::StrCat("waited ", Seconds(options_.start_timeout), " s for ", options_.servers, " servers and ",
                         options_.workers, " workers; there are: ", there.empty() ? "none" : absl::StrJoin(there, ", ")),
            actions);
  }
  rounds_.Tick(now, actions);
}

// Routing and assignment ------------------------------------------------------

void Coordinator::PublishRoutingIfServersAreThere(DeferredActions& actions) {
  if (routing_.published()) return;
  const std::vector<const Node*> servers = membership_.Present(SERVER_ROLE);
  if (servers.size() < options_.servers) return;
  routing_.Publish(servers, PlacePartitions(static_cast<uint32_t>(servers.size()), options_.job.partitions()));
  spdlog::info("routing: epoch {}, {} partitions on {} servers", routing_.epoch(), options_.job.partitions(),
               servers.size());
  const RoutingTable& table = routing_.table();
  routing_calls_.AnswerIf([&](uint64_t known) { return known < table.epoch(); }, table, actions);
  for (const TableCatalogue::Entry* entry : tables_.All()) CreateTableOnServers(entry->spec.id(), actions);
}

Ticket Coordinator::GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) {
  DeferredActions actions;
  MutexLock lock(mu_);
  if (const absl::Status status = CheckCanWait(); !status.ok()) {
    AnswerNow<RoutingTable>(std::move(done), status, actions);
    return 0;
  }
  if (routing_.epoch() > request.newer_than_epoch()) {
    AnswerNow<RoutingTable>(std::move(done), routing_.table(), actions);
    return 0;
  }
  routing_calls_.Park(++last_ticket_, request.newer_than_epoch(), std::move(done));
  return last_ticket_;
}

Ticket Coordinator::GetAssignment(const GetAssignmentRequest& request, Done<GetAssignmentResponse> done) {
  DeferredActions actions;
  MutexLock lock(mu_);
  absl::Status status = CheckCanWait();
  if (status.ok()) status = FindWorker(request.node(), request.incarnation()).status();
  if (!status.ok()) {
    AnswerNow<GetAssignmentResponse>(std::move(done), status, actions);
    return 0;
  }
  const Ticket ticket = ++last_ticket_;
  assignment_calls_.Park(ticket, request.node(), std::move(done));
  AnswerAssignments(actions);
  return ticket;
}

void Coordinator::AnswerAssignments(DeferredActions& actions) {
  for (const Node* worker : membership_.Present(WORKER_ROLE)) {
    const std::optional<std::vector<uint32_t>> ranks = logical_workers_.RanksOf(worker->name);
    if (!ranks.has_value()) continue;
    GetAssignmentResponse response;
    response.set_logical_workers_total(logical_workers_.total());
    for (const uint32_t rank : *ranks) response.add_logical_workers()->set_rank(rank);
    assignment_calls_.AnswerIf([&](const std::string& node) { return node == worker->name; }, response, actions);
  }
}

void Coordinator::StartIfAllAreThere() {
  if (!routing_.published()) return;
  if (!serve_only_ && !logical_workers_.AllHosted()) return;
  const JobState from = state_.state();
  if (!state_.Start(clock_.Now())) return;
  LogState(JobState_Name(from));
}

// Tables ----------------------------------------------------------------------

Ticket Coordinator::CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done) {
  DeferredActions actions;
  MutexLock lock(mu_);
  absl::Status status = CheckCanWait();
  if (status.ok() && state_.state() == FINISHING) status = absl::UnavailableError("the job is ending");
  if (!status.ok()) {
    AnswerNow<CreateTableResponse>(std::move(done), status, actions);
    return 0;
  }
  const absl::StatusOr<TableCatalogue::Creation> creation = tables_.Create(request.table());
  if (!creation.ok()) {
    AnswerNow<CreateTableResponse>(std::move(done), creation.status(), actions);
    return 0;
  }
  const TableSpec& spec = creation->entry->spec;
  if (creation->entry->ready) {
    CreateTableResponse response;
    *response.mutable_table() = spec;
    AnswerNow<CreateTableResponse>(std::move(done), response, actions);
    return 0;
  }
  const Ticket ticket = ++last_ticket_;
  table_calls_.Park(ticket, spec.id(), std::move(done));
  if (creation->is_new && routing_.published()) CreateTableOnServers(spec.id(), actions);
  return ticket;
}

void Coordinator::CreateTableOnServers(uint32_t table, DeferredActions& actions) {
  CreateTableOnServerRequest request;
  request.set_job_id(options_.job_id);
  *request.mutable_table() = tables_.Find(table)->spec;
  StartRound(
      absl::StrCat("creating table ", request.table().name()), kCreateTableTimeout,
      [this, request](const std::string& address, MonotonicDuration timeout, ServerCaller::Done done) {
        servers_.CreateTable(address, request, timeout, std::move(done));
      },
      [this, request](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        const TableSpec& spec = request.table();
        absl::StatusOr<CreateTableResponse> answer = CreateTableResponse();
        if (status.ok()) {
          tables_.MarkReady(spec.id());
          spdlog::info("table {}: {} {}", spec.id(), spec.name(), TableKind_Name(spec.kind()));
          *answer->mutable_table() = spec;
        } else {
          answer = status;
          tables_.Remove(spec.id());
          spdlog::warn("table {}: {}", spec.id(), status.ToString());
        }
        table_calls_.AnswerIf([&](uint32_t id) { return id == spec.id(); }, answer, actions);
      },
      actions);
}

absl::StatusOr<ListTablesResponse> Coordinator::ListTables(const ListTablesRequest& request) {
  MutexLock lock(mu_);
  ListTablesResponse response;
  for (const TableCatalogue::Entry* table : tables_.All()) {
    if (table->ready) *response.add_tables() = table->spec;
  }
  return response;
}

// Barriers --------------------------------------------------------------------

Ticket Coordinator::Barrier(const BarrierRequest& request, Done<BarrierResponse> done) {
  DeferredActions actions;
  MutexLock lock(mu_);
  absl::Status status = CheckCanWait();
  if (status.ok()) status = membership_.Find(request.node(), request.incarnation()).status();
  if (!status.ok()) {
    AnswerNow<BarrierResponse>(std::move(done), status, actions);
    return 0;
  }
  const absl::StatusOr<Barriers::Outcome> outcome =
      barriers_.Arrive(request.name(), request.parties(), request.party(), request.node());
  if (!outcome.ok()) {
    AnswerNow<BarrierResponse>(std::move(done), outcome.status(), actions);
    return 0;
  }
  const Ticket ticket = ++last_ticket_;
  barrier_calls_.Park(ticket, BarrierParty{request.name(), request.party()}, std::move(done));
  if (*outcome == Barriers::Outcome::kComplete) {
    barrier_calls_.AnswerIf([&](const BarrierParty& party) { return party.barrier == request.name(); },
                            BarrierResponse(), actions);
  }
  return ticket;
}

void Coordinator::Cancel(Ticket ticket, bool deadline_passed) {
  if (ticket == 0) return;
  DeferredActions actions;
  MutexLock lock(mu_);
  const absl::Status status =
      deadline_passed ? absl::DeadlineExceededError("the call's deadline passed while it waited in the scheduler")
                      : absl::CancelledError("the caller is gone");
  // A caller that lost its connection may ask again; one that gave up will not come back.
  const std::optional<BarrierParty> party = barrier_calls_.AnswerOne(ticket, status, actions);
  if (party.has_value() && deadline_passed) {
    const absl::Status failure = barriers_.FailParty(party->barrier, party->party, "gave up: its deadline passed");
    if (!failure.ok()) {
      spdlog::warn("{}", failure.ToString());
      barrier_calls_.AnswerIf([&](const BarrierParty& other) { return other.barrier == party->barrier; }, failure,
                              actions);
    }
  }
  if (party.has_value()) return;
  if (routing_calls_.AnswerOne(ticket, status, actions).has_value()) return;
  if (table_calls_.AnswerOne(ticket, status, actions).has_value()) return;
  if (assignment_calls_.AnswerOne(ticket, status, actions).has_value()) return;
  evaluation_calls_.AnswerOne(ticket, status, actions);
}

// Evaluation ------------------------------------------------------------------

Ticket Coordinator::ReportEvaluation(const ReportEvaluationRequest& request, Done<ReportEvaluationResponse> done) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const auto answer = [&](absl::StatusOr<ReportEvaluationResponse> response) {
    AnswerNow<ReportEvaluationResponse>(std::move(done), std::move(response), actions);
    return Ticket{0};
  };
  if (const absl::Status status = CheckCanWait(); !status.ok()) return answer(status);
  if (const auto worker = FindWorker(request.node(), request.incarnation()); !worker.ok()) {
    return answer(worker.status());
  }
  if (request.rank() < logical_workers_.total() && logical_workers_.hosts()[request.rank()] != request.node()) {
    return answer(absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " is not hosted by ",
                                                          request.node())));
  }
  const bool last_part = request.part() + 1 == request.parts();
  // A part that came before, whose answer was lost.
  for (const EvaluationResult& result : evaluations_) {
    if (result.evaluation() != request.evaluation()) continue;
    ReportEvaluationResponse response;
    if (last_part) {
      *response.mutable_result() = result;
      response.set_stop(stop_training_);
    }
    return answer(response);
  }
  if (request.evaluation() != evaluation_in_work_) {
    if (evaluation_in_work_ != 0) {
      return answer(absl::FailedPreconditionError(
          absl::StrCat("evaluation is ", request.evaluation(), ", but ", evaluation_in_work_, " is being computed")));
    }
    if (const absl::Status status = collector_.Add(request); !status.ok()) return answer(status);
  }
  Ticket ticket = 0;
  if (last_part) {
    ticket = ++last_ticket_;
    evaluation_calls_.Park(ticket, request.evaluation(), std::move(done));
  } else {
    answer(ReportEvaluationResponse());
  }
  if (collector_.complete()) {
    evaluation_in_work_ = collector_.evaluation();
    actions.Add([this, input = collector_.Take()] { EvaluationIsComplete(input); });
  }
  return ticket;
}

void Coordinator::EvaluationIsComplete(const EvaluationInput& input) {
  // Sorting millions of scores takes seconds, in which nobody's heartbeat must wait.
  const EvaluationResult result = ComputeEvaluation(input, options_.job.model().loss());
  DeferredActions actions;
  MutexLock lock(mu_);
  if (state_.over()) return;
  spdlog::info("{}", EvaluationText(result));
  EarlyStoppingPolicy::Decision decision;
  if (early_stopping_) decision = early_stopping_policy_.Observe(result);
  if (decision.stop) {
    stop_training_ = true;
    spdlog::info("early stopping after evaluation {}", result.evaluation());
  }
  if (!decision.improved) {
    PublishEvaluation(result, actions);
    return;
  }
  KeepBestRequest request;
  request.set_job_id(options_.job_id);
  request.set_evaluation(result.evaluation());
  StartRound(
      "keeping the best parameters", kKeepBestTimeout,
      [this, request](const std::string& address, MonotonicDuration timeout, ServerCaller::Done done) {
        servers_.KeepBest(address, request, timeout, std::move(done));
      },
      [this, result](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        best_is_kept_ = true;
        PublishEvaluation(result, actions);
      },
      actions);
}

void Coordinator::PublishEvaluation(const EvaluationResult& result, DeferredActions& actions) {
  evaluations_.push_back(result);
  if (evaluations_.size() > kMaxEvaluationsKept) evaluations_.pop_front();
  evaluation_in_work_ = 0;
  ReportEvaluationResponse response;
  *response.mutable_result() = result;
  response.set_stop(stop_training_);
  evaluation_calls_.AnswerIf([&](uint64_t evaluation) { return evaluation == result.evaluation(); }, response,
                             actions);
}

// The job's end ---------------------------------------------------------------

absl::StatusOr<FinishWorkResponse> Coordinator::FinishWork(const FinishWorkRequest& request) {
  DeferredActions actions;
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(state_.CheckNotOver());
  PAWL_ASSIGN_OR_RETURN(Node* const worker, FindWorker(request.node(), request.incarnation()));
  if (worker->finished) return FinishWorkResponse();
  if (request.has_progress()) worker->progress = request.progress();
  if (!worker->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*worker), ": ", worker->progress.failure()), actions);
    return FinishWorkResponse();
  }
  if (state_.state() == STARTING) {
    return absl::FailedPreconditionError(absl::StrCat(worker->name, ": the job has not started"));
  }
  worker->finished = true;
  spdlog::info("work done: {} at step {}", NodeText(*worker), worker->progress.steps_min());
  for (uint32_t rank = 0; rank < logical_workers_.total(); ++rank) {
    if (logical_workers_.hosts()[rank] == worker->name) finished_ranks_[rank] = true;
  }
  FinishIfAllWorkIsDone(actions);
  return FinishWorkResponse();
}

void Coordinator::FinishIfAllWorkIsDone(DeferredActions& actions) {
  if (std::find(finished_ranks_.begin(), finished_ranks_.end(), false) != finished_ranks_.end()) return;
  if (!state_.Finish(clock_.Now())) return;
  LogState(JobState_Name(RUNNING));
  if (!best_is_kept_) {
    InspectServers(actions);
    return;
  }
  RestoreBestRequest request;
  request.set_job_id(options_.job_id);
  StartRound(
      "restoring the best parameters", kKeepBestTimeout,
      [this, request](const std::string& address, MonotonicDuration timeout, ServerCaller::Done done) {
        servers_.RestoreBest(address, request, timeout, std::move(done));
      },
      [this](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        spdlog::info("restored the parameters of evaluation {}", early_stopping_policy_.best()->evaluation());
        InspectServers(actions);
      },
      actions);
}

void Coordinator::InspectServers(DeferredActions& actions) {
  InspectRequest request;
  request.set_job_id(options_.job_id);
  request.set_digest(true);
  // By server; each is written before its answer is counted, and read after the last one was.
  auto answers = std::make_shared<std::vector<InspectResponse>>(routing_.table().servers_size());
  std::vector<std::string> names;
  for (const ServerAddress& server : routing_.table().servers()) names.push_back(server.node());
  rounds_.Start(
      "inspecting", std::move(names), clock_.Now(), kInspectTimeout,
      AskBy([this, request, answers](size_t server, const std::string& address, MonotonicDuration timeout,
                                     ServerCaller::Done done) {
        servers_.Inspect(address, request, timeout,
                         [answers, server, done = std::move(done)](absl::StatusOr<InspectResponse> answer) mutable {
                           if (answer.ok()) (*answers)[server] = *std::move(answer);
                           done(answer.status());
                         });
      }),
      [this, answers](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        GatherResult(*answers, actions);
      },
      actions);
}

void Coordinator::GatherResult(const std::vector<InspectResponse>& answers, DeferredActions& actions) {
  std::map<uint32_t, std::string> names;
  for (const TableCatalogue::Entry* table : tables_.All()) names[table->spec.id()] = table->spec.name();
  ServerCounters counters;
  std::vector<PartitionDigest> digests;
  for (const InspectResponse& answer : answers) {
    AddCounters(answer.counters(), counters);
    digests.insert(digests.end(), answer.digests().begin(), answer.digests().end());
  }
  const absl::StatusOr<uint32_t> digest = CombineDigests(names, digests);
  if (!digest.ok()) {
    FailJob(std::string(digest.status().message()), actions);
    return;
  }
  digest_ = *digest;
  final_counters_ = counters;
  settled_ = true;
  spdlog::info("digest {}", DigestText(*digest));
  JobReport report = Report();
  report.status.set_state(COMPLETED);
  actions.Add([this, report = std::move(report)] {
    ReportIsWritten(options_.write_report == nullptr ? absl::OkStatus() : options_.write_report(report));
  });
}

void Coordinator::ReportIsWritten(const absl::Status& status) {
  DeferredActions actions;
  MutexLock lock(mu_);
  settled_ = false;
  if (!status.ok()) {
    FailJob(std::string(status.message()), actions);
    return;
  }
  if (!state_.Complete()) return;
  LogState(JobState_Name(FINISHING));
  EndEverything(actions);
}

void Coordinator::FailJob(const std::string& failure, DeferredActions& actions) {
  if (settled_) return;
  const JobState from = state_.state();
  if (!state_.Fail(failure.substr(0, kMaxFailureBytes), clock_.Now())) return;
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::StopJobFor(const std::string& reason, DeferredActions& actions) {
  if (settled_) return;
  const JobState from = state_.state();
  if (!state_.Stop(reason, clock_.Now())) return;
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::EndEverything(DeferredActions& actions) {
  const absl::Status status = state_.CheckNotOver();
  routing_calls_.AnswerAll(status, actions);
  table_calls_.AnswerAll(status, actions);
  barrier_calls_.AnswerAll(status, actions);
  assignment_calls_.AnswerAll(status, actions);
  evaluation_calls_.AnswerAll(status, actions);
  rounds_.Abandon();
  if (state_.state() == COMPLETED || options_.write_report == nullptr) {
    report_is_written_ = true;
    return;
  }
  actions.Add([this, report = Report()] {
    const absl::Status status = options_.write_report(report);
    if (!status.ok()) spdlog::error("{}", status.ToString());
    MutexLock lock(mu_);
    report_is_written_ = true;
  });
}

absl::StatusOr<StopJobResponse> Coordinator::StopJob(const StopJobRequest& request) {
  if (request.reason().size() > kMaxStopReasonBytes) {
    return absl::InvalidArgumentError(absl::StrCat("reason has ", request.reason().size(), " bytes; at most ",
                                                   kMaxStopReasonBytes, " are possible"));
  }
  Stop(request.reason().empty() ? "somebody asked for it" : request.reason());
  return StopJobResponse();
}

void Coordinator::Stop(absl::string_view reason) {
  DeferredActions actions;
  MutexLock lock(mu_);
  StopJobFor(std::string(reason), actions);
}

// Helpers ---------------------------------------------------------------------

absl::Status Coordinator::CheckCanWait() const {
  PAWL_RETURN_IF_ERROR(state_.CheckNotOver());
  if (routing_calls_.size() + table_calls_.size() + barrier_calls_.size() + assignment_calls_.size() +
          evaluation_calls_.size() >=
      kMaxParkedCalls) {
    return absl::ResourceExhaustedError(absl::StrCat(kMaxParkedCalls, " calls wait in the scheduler, the limit"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Node*> Coordinator::FindWorker(const std::string& node, uint64_t incarnation) {
  PAWL_ASSIGN_OR_RETURN(Node* const worker, membership_.Find(node, incarnation));
  if (worker->role != WORKER_ROLE) return absl::InvalidArgumentError(absl::StrCat("node ", node, " is not a worker"));
  return worker;
}

ServerRounds::Ask Coordinator::AskBy(
    std::function<void(size_t, const std::string&, MonotonicDuration, ServerCaller::Done)> call) {
  std::vector<std::string> addresses;
  for (const ServerAddress& server : routing_.table().servers()) addresses.push_back(server.address());
  return [this, call = std::move(call), addresses = std::move(addresses)](uint64_t round, size_t server,
                                                                          MonotonicDuration timeout) {
    call(server, addresses[server], timeout, [this, round, server](const absl::Status& status) {
      DeferredActions actions;
      MutexLock lock(mu_);
      rounds_.Answer(round, server, status, actions);
    });
  };
}

void Coordinator::StartRound(std::string what, MonotonicDuration timeout,
                             std::function<void(const std::string&, MonotonicDuration, ServerCaller::Done)> call,
                             ServerRounds::RoundDone done, DeferredActions& actions) {
  std::vector<std::string> names;
  for (const ServerAddress& server : routing_.table().servers()) names.push_back(server.node());
  rounds_.Start(std::move(what), std::move(names), clock_.Now(), timeout,
                AskBy([call = std::move(call)](size_t, const std::string& address, MonotonicDuration timeout,
                                               ServerCaller::Done done) { call(address, timeout, std::move(done)); }),
                std::move(done), actions);
}

void Coordinator::LogState(absl::string_view from) const {
  const std::string text = absl::StrCat("job state: ", from, " -> ", JobState_Name(state_.state()),
                                        state_.reason().empty() ? "" : ": ", state_.reason());
  if (state_.state() == FAILED) {
    spdlog::error("{}", text);
  } else {
    spdlog::info("{}", text);
  }
}

JobState Coordinator::state() const {
  MutexLock lock(mu_);
  return state_.state();
}

bool Coordinator::over() const {
  MutexLock lock(mu_);
  return state_.over() && report_is_written_;
}

bool Coordinator::AllNodesGone() const {
  MutexLock lock(mu_);
  return membership_.PresentCount() == 0;
}

absl::StatusOr<GetStatusResponse> Coordinator::GetStatus(const GetStatusRequest& request) {
  MutexLock lock(mu_);
  return Status();
}

GetStatusResponse Coordinator::Status() const {
  const MonotonicTime now = clock_.Now();
  GetStatusResponse status;
  *status.mutable_job() = options_.job;
  status.set_job_id(options_.job_id);
  status.set_state(state_.state());
  status.set_failure(state_.reason());
  status.set_routing_epoch(routing_.epoch());
  status.set_train_s(state_.TrainSeconds(now));
  for (const EvaluationResult& result : evaluations_) *status.add_evaluations() = result;
  if (digest_.has_value()) status.set_digest(*digest_);

  const std::vector<uint32_t> partitions = routing_.PartitionCounts();
  std::optional<uint64_t> steps;
  double loss_sum = 0;
  size_t ranks_hosted = 0;
  for (const Node* node : membership_.All()) {
    NodeStatus& shown = *status.add_nodes();
    shown.set_node(node->name);
    shown.set_role(node->role);
    shown.set_incarnation(node->incarnation);
    shown.set_address(node->address);
    shown.set_description(node->description);
    shown.set_silent_ms(static_cast<uint64_t>(
        std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(now - node->last_heard).count())));
    shown.set_gone(node->gone);
    if (node->role == SERVER_ROLE) {
      *shown.mutable_server() = node->counters;
      if (!final_counters_.has_value()) AddCounters(node->counters, *status.mutable_counters());
      for (int server = 0; server < routing_.table().servers_size(); ++server) {
        if (routing_.table().servers(server).incarnation() == node->incarnation) {
          shown.set_partitions(partitions[server]);
        }
      }
    }
    if (node->role == WORKER_ROLE) {
      *shown.mutable_worker() = node->progress;
      status.set_samples(status.samples() + node->progress.samples());
      status.set_steps_total(std::max(status.steps_total(), node->progress.steps_total()));
      const std::vector<uint32_t> ranks =
          logical_workers_.RanksOf(node->name).value_or(std::vector<uint32_t>());
      for (const uint32_t rank : ranks) shown.add_logical_workers(rank);
      if (!ranks.empty()) {
        steps = std::min(steps.value_or(node->progress.steps_min()), node->progress.steps_min());
        loss_sum += node->progress.loss() * static_cast<double>(ranks.size());
        ranks_hosted += ranks.size();
      }
    }
  }
  // A rank without a host has done nothing.
  status.set_steps(ranks_hosted == logical_workers_.total() ? steps.value_or(0) : 0);
  if (ranks_hosted > 0) status.set_loss(loss_sum / static_cast<double>(ranks_hosted));
  if (final_counters_.has_value()) *status.mutable_counters() = *final_counters_;
  return status;
}

JobReport Coordinator::Report() const {
  JobReport report;
  report.status = Status();
  report.servers = options_.servers;
  report.workers = static_cast<uint32_t>(
      std::count_if(report.status.nodes().begin(), report.status.nodes().end(),
                    [](const NodeStatus& node) { return node.logical_workers_size() > 0; }));
  if (best_is_kept_) {
    report.evaluation = early_stopping_policy_.best();
  } else if (!evaluations_.empty()) {
    report.evaluation = evaluations_.back();
  }
  return report;
}

}  // namespace pawl
