#include "scheduler/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_validation.h"
#include "scheduler/routing.h"
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
  membership.job_id = options.job_id;
  membership.lease = options.lease;
  membership.max_servers = std::min(options.servers, kMaxServers);
  // Workers with ranks of their own choice come whenever they like; each has at least one.
  membership.max_workers =
      IsServeOnly(options.job) ? kMaxWorkers
                               : std::min(std::max(options.workers, options.job.logical_workers()), kMaxWorkers);
  return membership;
}

ReplicaDirector::Options DirectorOptions(const Coordinator::Options& options) {
  ReplicaDirector::Options director;
  director.partitions = options.job.partitions();
  director.replicas = std::max(options.job.replicas(), 1u);
  director.durable = options.job.durability() != MEMORY;
  director.recovery_timeout = options.recovery_timeout;
  return director;
}

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, ServerCaller& servers, const SchedulerState* restored)
    : options_(std::move(options)),
      serve_only_(IsServeOnly(options_.job)),
      clock_(clock),
      servers_(servers),
      created_(clock.Now()),
      last_tick_(created_),
      membership_(MembershipOptions(options_)),
      director_(DirectorOptions(options_)),
      logical_workers_(options_.job.logical_workers(), options_.workers),
      tables_(options_.job),
      evaluations_(options_.job),
      figures_saved_(created_) {
  MutexLock lock(mu_);
  if (restored != nullptr) Restore(*restored);
  // The state is as it is saved, or is that of a job of which nobody knows yet.
  told_ = PresentView();
}

// Saving ----------------------------------------------------------------------

void Coordinator::EndSection(DeferredActions& actions) {
  if (gate_.all_saved()) return;
  if (options_.state_changed == nullptr) {
    gate_.Saved(gate_.change(), actions);
    Tell(PresentView(), actions);
    return;
  }
  gate_.Hold(actions);
  options_.state_changed();
}

Coordinator::View Coordinator::PresentView() const { return {state_.state(), state_.reason(), routing_}; }

void Coordinator::Tell(View view, DeferredActions& actions) {
  told_ = std::move(view);
  if (told_.routing == nullptr) return;
  const RoutingTable& table = *told_.routing;
  routing_calls_.AnswerIf([&](uint64_t known) { return known < table.epoch(); }, table, actions);
}

template <typename Response>
bool Coordinator::RefuseIfTooManyAreHeld(Done<Response>& done) {
  {
    MutexLock lock(mu_);
    if (gate_.held() < kMaxParkedCalls) return false;
  }
  done(absl::ResourceExhaustedError(
      absl::StrCat(kMaxParkedCalls, " answers wait until the scheduler's state is saved, the limit")));
  return true;
}

std::optional<UnsavedState> Coordinator::TakeUnsaved() {
  MutexLock lock(mu_);
  if (gate_.all_saved()) return std::nullopt;
  being_saved_ = PresentView();
  return UnsavedState{gate_.change(), State()};
}

void Coordinator::StateIsSaved(uint64_t change) {
  DeferredActions actions;
  MutexLock lock(mu_);
  gate_.Saved(change, actions);
  Tell(being_saved_, actions);
}

void Coordinator::Close() {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  closed_ = true;
  gate_.Changed();
}

// Membership ------------------------------------------------------------------

Ticket Coordinator::Register(const RegisterRequest& request, Done<RegisterResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const auto answer = [&](absl::StatusOr<RegisterResponse> response) {
    AnswerNow<RegisterResponse>(std::move(done), std::move(response), actions);
    return Ticket{0};
  };
  if (const absl::Status status = state_.CheckNotOver(); !status.ok()) return answer(status);
  const std::vector<uint32_t> wishes(request.logical_workers().begin(), request.logical_workers().end());
  const Node* const before = membership_.FindReturning(request);
  const bool repeated = before != nullptr && !before->gone && before->process_nonce == request.process_nonce();
  if (request.role() == WORKER_ROLE && !repeated) {
    const absl::Status status = logical_workers_.CheckWishes(before == nullptr ? "" : before->name, wishes);
    if (!status.ok()) return answer(status);
  }
  const absl::StatusOr<Membership::Registration> registration = membership_.Register(request, clock_.Now());
  if (!registration.ok()) return answer(registration.status());
  const Node& node = *registration->node;

  RegisterResponse response;
  response.set_node(node.name);
  response.set_incarnation(node.incarnation);
  response.set_job_id(options_.job_id);
  *response.mutable_job() = options_.job;
  response.set_heartbeat_interval_ms(static_cast<uint32_t>(options_.heartbeat_interval.count()));
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  if (node.role == CLIENT_ROLE) response.set_client(node.number);
  answer(response);
  if (!registration->is_new) return 0;

  gate_.Changed();
  spdlog::info("node {}: {} incarnation {}", registration->returned ? "came back" : "joined", NodeText(node),
               node.incarnation);
  if (registration->former.has_value()) {
    NodesAreGone({*registration->former}, {"was restarted"}, /*dead=*/true, actions);
  }
  if (node.role == SERVER_ROLE && !director_.placed()) {
    PlaceIfServersAreThere(actions);
  } else if (node.role == SERVER_ROLE && !state_.over()) {
    std::vector<uint32_t> recovered;
    for (const RecoveredReplica& replica : request.recovered()) recovered.push_back(replica.partition());
    const std::optional<std::string> loss = director_.ServerIsThere(node, std::move(recovered));
    RoutingHasChanged(actions);
    if (loss.has_value()) FailJob(*loss, actions);
  }
  if (node.role == WORKER_ROLE) {
    logical_workers_.Join(node.name, wishes);
    AnswerAssignments(actions);
  }
  StartIfAllAreThere();
  return 0;
}

absl::StatusOr<HeartbeatResponse> Coordinator::Heartbeat(const HeartbeatRequest& request) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const Node* const known = membership_.FindByName(request.node());
  const Node before = known == nullptr ? Node() : *known;
  PAWL_ASSIGN_OR_RETURN(const Node* const node, membership_.Heartbeat(request, clock_.Now()));
  if (!node->progress.failure().empty()) FailJob(absl::StrCat(NodeText(*node), ": ", node->progress.failure()), actions);
  if (node->role == SERVER_ROLE && director_.placed() && !state_.over()) {
    replan_ = replan_ || node->draining != before.draining || node->adopted_epoch != before.adopted_epoch;
    if (director_.LearnersHaveCaughtUp(*node, {request.caught_up().begin(), request.caught_up().end()}, membership_)) {
      RoutingHasChanged(actions);
    }
  }
  HeartbeatResponse response;
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_routing_epoch(told_.routing == nullptr ? 0 : told_.routing->epoch());
  response.set_job_state(told_.state);
  response.set_failure(told_.reason);
  return response;
}

Ticket Coordinator::Goodbye(const GoodbyeRequest& request, Done<GoodbyeResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const absl::StatusOr<Node*> found = membership_.Find(request.node(), request.incarnation());
  std::optional<Node> leaving;
  if (found.ok()) leaving = **found;
  const absl::Status left = membership_.Leave(request.node(), request.incarnation());
  AnswerNow<GoodbyeResponse>(std::move(done), left.ok() ? absl::StatusOr<GoodbyeResponse>(GoodbyeResponse()) : left,
                             actions);
  if (left.ok() && leaving.has_value()) {
    spdlog::info("node left: {}", NodeText(*leaving));
    NodesAreGone({*leaving}, {absl::StrCat("left while the job was ", JobState_Name(state_.state()))}, /*dead=*/false,
                 actions);
  }
  return 0;
}

void Coordinator::NodesAreGone(const std::vector<Node>& nodes, const std::vector<std::string>& how, bool dead,
                               DeferredActions& actions) {
  if (nodes.empty()) return;
  gate_.Changed();
  if (state_.over()) return;
  std::vector<Node> servers;
  std::vector<std::string> how_servers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    for (const Barriers::Failure& failure : barriers_.FailNode(node.name, how[i])) {
      spdlog::warn("{}", failure.status.ToString());
      barrier_calls_.AnswerIf([&](const BarrierParty& party) { return party.barrier == failure.name; },
                              failure.status, actions);
    }
    if (node.role == WORKER_ROLE) WorkerIsGone(node, how[i], dead, actions);
    if (node.role != SERVER_ROLE) continue;
    servers.push_back(node);
    how_servers.push_back(how[i]);
  }
  // All at once: who died together may each be the one that comes back first.
  if (servers.empty() || !director_.placed()) return;
  const std::optional<std::string> loss = director_.ServersAreGone(servers, how_servers, clock_.Now());
  // The table is for those that are there; a restarted server is again.
  RoutingHasChanged(actions);
  if (loss.has_value()) FailJob(*loss, actions);
}

void Coordinator::WorkerIsGone(const Node& worker, const std::string& how, bool dead, DeferredActions& actions) {
  const bool must_return = dead || !serve_only_;
  const std::vector<uint32_t> ranks = logical_workers_.Leave(
      {worker.name, worker.incarnation, absl::StrCat(NodeText(worker), " ", how), must_return}, clock_.Now());
  for (const uint32_t rank : ranks) {
    evaluations_.Forget(rank);
    if (options_.job.consistency().mode() != SYNC) ReleaseOnServers({rank, worker.incarnation}, actions);
  }
  if (!ranks.empty()) {
    spdlog::warn("{} {}; rank{} {} {} free", NodeText(worker), how, ranks.size() == 1 ? "" : "s",
                 absl::StrJoin(ranks, ", "), ranks.size() == 1 ? "is" : "are");
  }
  assignment_calls_.AnswerIf([&](const std::string& other) { return other == worker.name; },
                             absl::AbortedError(absl::StrCat(worker.name, " ", how)), actions);
}

void Coordinator::Tick() {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const MonotonicTime now = clock_.Now();
  if (restored_) TakeUpWhatWasUnderWay(actions);
  // If this process did not run, heartbeats lie unread; nobody is dead for that.
  const MonotonicDuration gap = now - last_tick_;
  last_tick_ = now;
  if (gap > options_.lease / 2) {
    spdlog::warn("the scheduler did not run for {:.3f} s; leases are extended by it", Seconds(gap));
    membership_.ExtendLeases(gap);
  }
  const std::vector<Node> dead = membership_.ExpireLeases(now);
  std::vector<std::string> how;
  for (const Node& node : dead) {
    how.push_back(absl::StrFormat("died: no heartbeat for %.1f s", Seconds(now - node.last_heard)));
    spdlog::warn("node died: {} {}", NodeText(node), how.back());
  }
  NodesAreGone(dead, how, /*dead=*/true, actions);
  if (state_.over()) return;

  if (replan_) {
    replan_ = false;
    // While the result is gathered, who has it stays.
    if (director_.Step(membership_.Present(SERVER_ROLE), /*move=*/state_.state() != FINISHING)) {
      RoutingHasChanged(actions);
    }
  }
  if (const auto loss = director_.CheckRecovery(now); loss.has_value()) FailJob(*loss, actions);
  if (const auto loss = logical_workers_.CheckReturn(now, options_.worker_return_timeout); loss.has_value()) {
    FailJob(*loss, actions);
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
  if (options_.state_changed != nullptr && now - figures_saved_ > kFiguresSaveInterval) {
    figures_saved_ = now;
    gate_.Changed();
  }
}

void Coordinator::TakeUpWhatWasUnderWay(DeferredActions& actions) {
  restored_ = false;
  // Time in which nobody could be heard.
  last_tick_ = clock_.Now();
  if (state_.over()) {
    if (state_.state() != COMPLETED) EndEverything(actions);
    return;
  }
  if (!director_.placed()) {
    PlaceIfServersAreThere(actions);
  } else {
    for (const TableCatalogue::Entry* entry : tables_.All()) {
      if (!entry->ready) CreateTableOnServers(entry->spec.id(), actions);
    }
  }
  if (options_.job.consistency().mode() != SYNC) {
    for (const LogicalWorkers::FreeRank& rank : logical_workers_.FreeRanks()) ReleaseOnServers(rank, actions);
  }
  StartIfAllAreThere();
  if (state_.state() == FINISHING) {
    FinishOnServers(actions);
  } else {
    FinishIfAllWorkIsDone(actions);
  }
}

// Routing and assignment ------------------------------------------------------

void Coordinator::PlaceIfServersAreThere(DeferredActions& actions) {
  const std::vector<const Node*> servers = membership_.Present(SERVER_ROLE);
  if (servers.size() < options_.servers) return;
  director_.PlaceFirst(servers);
  RoutingHasChanged(actions);
  for (const TableCatalogue::Entry* entry : tables_.All()) CreateTableOnServers(entry->spec.id(), actions);
}

void Coordinator::RoutingHasChanged(DeferredActions& actions) {
  const std::vector<const Node*> servers = membership_.Present(SERVER_ROLE);
  routing_ = std::make_shared<RoutingTable>(MakeRoutingTable(options_.job_id, director_.placement(), servers));
  gate_.Changed();
  replan_ = true;
  const uint64_t since = director_.primaries_since();
  if (since == targets_since_) return;
  targets_since_ = since;
  if (!director_.EveryPartitionHasAPrimary()) {
    rounds_.SetTargets(std::nullopt, clock_.Now(), actions);
    return;
  }
  std::vector<bool> is_primary(routing_->servers_size());
  for (const uint32_t server : routing_->primary()) is_primary[server] = true;
  ServerRounds::Targets targets;
  targets.epoch = routing_->epoch();
  for (int i = 0; i < routing_->servers_size(); ++i) {
    if (is_primary[i]) targets.servers.push_back({routing_->servers(i).node(), routing_->servers(i).address()});
  }
  rounds_.SetTargets(std::move(targets), clock_.Now(), actions);
}

Ticket Coordinator::GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  if (const absl::Status status = CheckCanWait(); !status.ok()) {
    AnswerNow<RoutingTable>(std::move(done), status, actions);
    return 0;
  }
  if (told_.routing != nullptr && told_.routing->epoch() > request.newer_than_epoch()) {
    AnswerNow<RoutingTable>(std::move(done), *told_.routing, actions);
    return 0;
  }
  routing_calls_.Park(++last_ticket_, request.newer_than_epoch(), std::move(done));
  return last_ticket_;
}

Ticket Coordinator::GetAssignment(const GetAssignmentRequest& request, Done<GetAssignmentResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
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
  if (!director_.placed()) return;
  if (!serve_only_ && !logical_workers_.AllHosted()) return;
  const JobState from = state_.state();
  if (!state_.Start(clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
}

// Tables ----------------------------------------------------------------------

Ticket Coordinator::CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
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
  if (creation->is_new) gate_.Changed();
  if (creation->is_new && director_.placed()) CreateTableOnServers(spec.id(), actions);
  return ticket;
}

Ticket Coordinator::ListTables(const ListTablesRequest& request, Done<ListTablesResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  ListTablesResponse response;
  for (const TableCatalogue::Entry* table : tables_.All()) {
    if (table->ready) *response.add_tables() = table->spec;
  }
  AnswerNow<ListTablesResponse>(std::move(done), response, actions);
  return 0;
}

// Barriers --------------------------------------------------------------------

Ticket Coordinator::Barrier(const BarrierRequest& request, Done<BarrierResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
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
    gate_.Changed();
    barrier_calls_.AnswerIf([&](const BarrierParty& party) { return party.barrier == request.name(); },
                            BarrierResponse(), actions);
  }
  return ticket;
}

void Coordinator::Cancel(Ticket ticket, bool deadline_passed) {
  if (ticket == 0) return;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const absl::Status status =
      deadline_passed ? absl::DeadlineExceededError("the call's deadline passed while it waited in the scheduler")
                      : absl::CancelledError("the caller is gone");
  // A caller that lost its connection may ask again; one that gave up will not come back.
  const std::optional<BarrierParty> party = barrier_calls_.AnswerOne(ticket, status, actions);
  if (party.has_value() && deadline_passed) {
    const absl::Status failure = barriers_.FailParty(party->barrier, party->party, "gave up: its deadline passed");
    if (!failure.ok()) {
      gate_.Changed();
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
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const auto answer = [&](absl::StatusOr<ReportEvaluationResponse> response) {
    AnswerNow<ReportEvaluationResponse>(std::move(done), std::move(response), actions);
    return Ticket{0};
  };
  if (const absl::Status status = CheckCanWait(); !status.ok()) return answer(status);
  if (const auto worker = FindWorker(request.node(), request.incarnation()); !worker.ok()) {
    return answer(worker.status());
  }
  if (request.rank() < logical_workers_.total() && logical_workers_.HostOf(request.rank()) != request.node()) {
    return answer(absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " is not hosted by ",
                                                          request.node())));
  }
  const bool last_part = request.part() + 1 == request.parts();
  // A part that came before, whose answer was lost, or whose sender was.
  if (const EvaluationResult* const result = evaluations_.Find(request.evaluation()); result != nullptr) {
    ReportEvaluationResponse response;
    if (last_part) {
      *response.mutable_result() = *result;
      response.set_stop(evaluations_.stop_training());
    }
    return answer(response);
  }
  if (const absl::Status status = evaluations_.Add(request); !status.ok()) return answer(status);
  Ticket ticket = 0;
  if (last_part) {
    ticket = ++last_ticket_;
    evaluation_calls_.Park(ticket, request.evaluation(), std::move(done));
  } else {
    answer(ReportEvaluationResponse());
  }
  if (std::optional<EvaluationInput> input = evaluations_.Take(); input.has_value()) {
    actions.Add([this, input = *std::move(input)] { EvaluationIsComplete(input); });
  }
  return ticket;
}

// The job's end ---------------------------------------------------------------

Ticket Coordinator::FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const auto answer = [&](absl::StatusOr<FinishWorkResponse> response) {
    AnswerNow<FinishWorkResponse>(std::move(done), std::move(response), actions);
    return Ticket{0};
  };
  if (const absl::Status status = state_.CheckNotOver(); !status.ok()) return answer(status);
  const absl::StatusOr<Node*> found = FindWorker(request.node(), request.incarnation());
  if (!found.ok()) return answer(found.status());
  Node* const worker = *found;
  if (worker->finished) return answer(FinishWorkResponse());
  if (request.has_progress()) worker->progress = request.progress();
  if (!worker->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*worker), ": ", worker->progress.failure()), actions);
    return answer(FinishWorkResponse());
  }
  if (state_.state() == STARTING) {
    return answer(absl::FailedPreconditionError(absl::StrCat(worker->name, ": the job has not started")));
  }
  worker->finished = true;
  gate_.Changed();
  spdlog::info("work done: {} at step {}", NodeText(*worker), worker->progress.steps_min());
  logical_workers_.Finish(worker->name);
  answer(FinishWorkResponse());
  FinishIfAllWorkIsDone(actions);
  return 0;
}

void Coordinator::FinishIfAllWorkIsDone(DeferredActions& actions) {
  if (!logical_workers_.AllFinished() || !state_.Finish(clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(RUNNING));
  FinishOnServers(actions);
}

void Coordinator::ReportIsWritten(const absl::Status& status) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  settled_ = false;
  if (!status.ok()) {
    FailJob(std::string(status.message()), actions);
    return;
  }
  if (!state_.Complete()) return;
  gate_.Changed();
  LogState(JobState_Name(FINISHING));
  EndEverything(actions);
}

void Coordinator::FailJob(const std::string& failure, DeferredActions& actions) {
  if (settled_) return;
  const JobState from = state_.state();
  if (!state_.Fail(failure.substr(0, kMaxFailureBytes), clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::StopJobFor(const std::string& reason, DeferredActions& actions) {
  if (settled_) return;
  const JobState from = state_.state();
  if (!state_.Stop(reason, clock_.Now())) return;
  gate_.Changed();
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

Ticket Coordinator::StopJob(const StopJobRequest& request, Done<StopJobResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  if (request.reason().size() > kMaxStopReasonBytes) {
    AnswerNow<StopJobResponse>(std::move(done),
                               absl::InvalidArgumentError(absl::StrCat("reason has ", request.reason().size(),
                                                                       " bytes; at most ", kMaxStopReasonBytes,
                                                                       " are possible")),
                               actions);
    return 0;
  }
  AnswerNow<StopJobResponse>(std::move(done), StopJobResponse(), actions);
  StopJobFor(request.reason().empty() ? "somebody asked for it" : request.reason(), actions);
  return 0;
}

void Coordinator::Stop(absl::string_view reason) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
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
  return state_.over() && report_is_written_ && gate_.all_saved();
}

bool Coordinator::AllNodesGone() const {
  MutexLock lock(mu_);
  return membership_.PresentCount() == 0;
}

}  // namespace pawl
