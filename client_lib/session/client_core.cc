#include "client_lib/session/client_core.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "client_lib/process/process_description.h"
#include "client_lib/rpc/futures.h"
#include "client_lib/session/session_impl.h"
#include "client_lib/session/step_calls.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// After a failure everything in flight ends at once, except callbacks of the user.
constexpr std::chrono::seconds kCloseLimit{60};

// How long Close waits until the scheduler has the last metrics: several heartbeats.
constexpr std::chrono::seconds kLastMetricsTimeout{2};

// How often Join checks `check_interrupted`.
constexpr std::chrono::milliseconds kJoinInterval{50};

// MonotonicDuration::max() means no limit; deadlines must not overflow.
constexpr std::chrono::hours kLongestTimeout{24 * 365};

MonotonicTime DeadlineIn(const Clock& clock, MonotonicDuration timeout) {
  return clock.Now() + std::min<MonotonicDuration>(timeout, kLongestTimeout);
}

}  // namespace

ClientCore::ClientCore(ClientOptions options, Transport& transport, ControlChannel& control,
                       ControlChannel& link)
    : options_(std::move(options)),
      clock_(*options_.clock),
      transport_(transport),
      control_(control),
      link_channel_(link),
      deadlines_(std::make_shared<DeadlineQueue>(transport_, clock_)),
      push_flow_(std::make_shared<FlowControl>(options_.max_bytes_in_flight, kMaxWaitingCalls,
                                               deadlines_, kMaxCallsInFlight)),
      pull_flow_(std::make_shared<FlowControl>(options_.max_bytes_in_flight, kMaxWaitingCalls,
                                               deadlines_, kMaxCallsInFlight)),
      step_closings_(std::make_shared<StepClosings>(deadlines_)) {}

ClientCore::~ClientCore() = default;

MonotonicTime ClientCore::Deadline(const CallOptions& options) const {
  return DeadlineIn(clock_, options.timeout.value_or(options_.call_timeout));
}

bool ClientCore::is_sync() const { return IsSync(registration_.job().consistency().mode()); }

absl::Status ClientCore::Join() {
  std::future<absl::Status> joined;
  Join(Fulfilling(joined));
  while (options_.check_interrupted != nullptr &&
         joined.wait_for(kJoinInterval) != std::future_status::ready) {
    if (const absl::Status reason = options_.check_interrupted(); !reason.ok()) FinishJoin(reason);
  }
  return joined.get();
}

void ClientCore::Join(Callback done) {
  const MonotonicTime deadline = DeadlineIn(clock_, options_.connect_timeout);
  // The link is closed before the core is destroyed.
  link_ = std::make_unique<NodeLink>(
      link_channel_, clock_, options_.scheduler,
      NodeLink::Events{
          .fill_heartbeat =
              [this](HeartbeatRequest& request) {
                if (options_.security_report != nullptr)
                  *request.mutable_security() = options_.security_report();
                MutexLock lock(mu_);
                if (options_.role != WORKER_ROLE) return;
                *request.mutable_worker() = progress_;
                metrics_.AddTo(*request.mutable_worker());
              },
          .heartbeat_answered =
              [this](const HeartbeatRequest& request) { AcknowledgeMetrics(request.worker()); },
          .routing = [this](const RoutingTable& table) { OnRouting(table); },
          .job_state = [this](JobState state,
                              const std::string& failure) { OnJobState(state, failure); },
          .leave_requested =
              [this] {
                MutexLock lock(mu_);
                told_to_leave_ = true;
              },
          .disowned = [this](const absl::Status& why) { OnDisowned(why); }});

  RegisterRequest request;
  request.set_role(options_.role);
  request.set_node(options_.node);
  request.set_job_id(options_.node_job_id);
  request.set_start_count(options_.node_start_count);
  request.set_description(options_.description.empty() ? ProcessDescription()
                                                       : options_.description);
  for (const uint32_t rank : options_.logical_workers) request.add_logical_workers(rank);
  request.set_follows_assignment(options_.role == WORKER_ROLE && options_.follows_assignment);
  {
    MutexLock lock(mu_);
    joining_ = std::move(done);
  }
  link_->Register(
      std::move(request), deadline,
      [this, deadline](absl::StatusOr<RegisterResponse> registration) {
        if (!registration.ok()) return FinishJoin(registration.status());
        registration_ = *std::move(registration);
        control_.SetNodeTicket(registration_.node_ticket());
        router_ = std::make_shared<Router>(registration_.job_id());
        messenger_ = std::make_shared<Messenger>(transport_, clock_, router_, deadlines_);
        scheduler_calls_ = std::make_shared<SchedulerCalls>(
            control_, clock_, [messenger = messenger_] { return messenger->failure(); });
        {
          MutexLock lock(mu_);
          // The caller has given up, and closes the client.
          if (joining_ == nullptr) return;
          join_timer_ = deadlines_->Add(deadline, [self = shared_from_this()] {
            self->FinishJoin(absl::DeadlineExceededError(
                absl::StrCat("waiting for the job's servers: the scheduler at ",
                             self->options_.scheduler, " has sent no routing in time")));
          });
        }
        WatchScheduler();
        link_->Start();
      });
}

void ClientCore::WatchScheduler() {
  const uint64_t messages = messenger_->counters().messages;
  // The queue belongs to the core.
  const MonotonicTime due = clock_.Now() + kSchedulerTimeout;
  deadlines_->Add(due, [core = weak_from_this(), messages, due] {
    const std::shared_ptr<ClientCore> self = core.lock();
    if (self == nullptr) return;
    const MonotonicDuration silence = self->link_->silence();
    // A process that was stopped was silent itself.
    const bool was_stopped = self->clock_.Now() - due >= kLateWatch;
    if (was_stopped || silence < kSchedulerTimeout ||
        self->messenger_->counters().messages != messages)
      return self->WatchScheduler();
    self->Fail(absl::UnavailableError(absl::StrCat(
        "the scheduler at ", self->options_.scheduler, " has not answered for ",
        std::chrono::floor<std::chrono::minutes>(silence).count(),
        " minutes, in which this client sent nothing to the servers. Its log and metrics.json say "
        "whether the job has ended; if not, connect again")));
  });
}

void ClientCore::OnDisowned(const absl::Status& why) {
  // The ranks of this process may have a successor already.
  if (options_.role != CLIENT_ROLE) return Fail(absl::AbortedError(why.message()));
  RegisterRequest request;
  request.set_role(CLIENT_ROLE);
  // No other client may get the number under which this one continues to push.
  request.set_node(registration_.node());
  request.set_job_id(registration_.job_id());
  // OUT_OF_RANGE if the job has ended meanwhile, NOT_FOUND if another one runs there.
  request.set_that_job_only(true);
  request.set_start_count(options_.node_start_count);
  request.set_description(options_.description.empty() ? ProcessDescription()
                                                       : options_.description);
  link_->Register(
      std::move(request), MonotonicTime::max(),
      [this](absl::StatusOr<RegisterResponse> registered) {
        if (registered.ok() && registered->job_id() != registration_.job_id()) {
          registered = absl::AbortedError(
              absl::StrCat("the scheduler at ", options_.scheduler, " runs another job now"));
        }
        if (absl::IsNotFound(registered.status()))
          registered = absl::AbortedError(registered.status().message());
        if (absl::IsOutOfRange(registered.status()))
          registered = absl::FailedPreconditionError(registered.status().message());
        if (!registered.ok()) return Fail(registered.status());
        // To the servers it keeps its identity: calls in flight keep their push ids.
        control_.SetNodeTicket(registered->node_ticket());
        spdlog::info("{} has joined again, as {}", registration_.node(), registered->node());
        link_->Start();
      });
}

void ClientCore::FinishJoin(const absl::Status& status) {
  Callback done;
  std::optional<DeadlineQueue::Id> timer;
  {
    MutexLock lock(mu_);
    if (joining_ == nullptr) return;
    done = std::exchange(joining_, nullptr);
    timer = std::exchange(join_timer_, std::nullopt);
    if (status.ok()) {
      SessionImpl::Identity identity;
      if (options_.role == CLIENT_ROLE) identity.client = registration_.client();
      free_running_ = std::make_shared<SessionImpl>(shared_from_this(), identity);
    }
  }
  if (timer.has_value()) deadlines_->Remove(*timer);
  done(status);
}

void ClientCore::DeliverMetrics() {
  const MonotonicTime limit = Clock::Real().Now() + kLastMetricsTimeout;
  MutexLock lock(mu_);
  // Heartbeats carry them, also after the end of the job. A disowned client sends none.
  while (!metrics_.empty() && link_->lease_until() != MonotonicTime::min() &&
         changed_.WaitUntil(mu_, limit)) {
  }
}

void ClientCore::Close() {
  if (link_ != nullptr) DeliverMetrics();
  bool has_joined;
  {
    MutexLock lock(mu_);
    has_joined = free_running_ != nullptr;
  }
  const absl::Status why = absl::CancelledError("the client is being destroyed");
  // Before the farewell, after which the scheduler refuses the calls that wait there.
  if (has_joined) Fail(why);
  if (link_ != nullptr) link_->Close();
  // The registration of an interrupted Join may have set it until now.
  if (!has_joined && messenger_ != nullptr) Fail(why);
  // Ends the calls that wait at the scheduler.
  control_.Shutdown();
  {
    const MonotonicTime limit = Clock::Real().Now() + kCloseLimit;
    MutexLock lock(mu_);
    while (calls_ > 0) {
      if (!changed_.WaitUntil(mu_, limit) && calls_ > 0) {
        spdlog::critical(
            "{} calls have not ended {} s after the client was closed; does a callback block?",
            calls_, kCloseLimit.count());
        std::abort();
      }
    }
  }
  link_channel_.Shutdown();
  transport_.Shutdown();
  MutexLock lock(mu_);
  logical_workers_.clear();
  free_running_.reset();
}

JobState ClientCore::job_state() const {
  MutexLock lock(mu_);
  return job_state_;
}

bool ClientCore::WaitForEnd(MonotonicDuration timeout) const {
  const MonotonicTime deadline = DeadlineIn(Clock::Real(), timeout);
  MutexLock lock(mu_);
  for (;;) {
    if (failed_ || job_state_ == COMPLETED || job_state_ == FAILED || job_state_ == STOPPED)
      return true;
    if (!changed_.WaitUntil(mu_, deadline) && Clock::Real().Now() >= deadline) return false;
  }
}

bool ClientCore::leave_requested() const {
  MutexLock lock(mu_);
  return told_to_leave_;
}

void ClientCore::SetProgress(const WorkerProgress& progress) {
  MutexLock lock(mu_);
  progress_ = progress;
}

absl::Status ClientCore::LogMetric(const std::string& name, uint64_t step, double value) {
  if (options_.role != WORKER_ROLE) {
    return absl::FailedPreconditionError(
        "only a WORKER_ROLE client reports metrics; see ClientOptions::role");
  }
  MutexLock lock(mu_);
  return metrics_.Add(name, step, value);
}

void ClientCore::AddMetrics(WorkerProgress& progress) const {
  MutexLock lock(mu_);
  metrics_.AddTo(progress);
}

void ClientCore::AcknowledgeMetrics(const WorkerProgress& progress) {
  MutexLock lock(mu_);
  metrics_.Acknowledge(progress);
  if (metrics_.empty()) changed_.NotifyAll();
}

void ClientCore::Fail(const absl::Status& why, JobState state) {
  deadlines_->Close();
  // First, so that nothing is sent again and every woken waiter finds the reason.
  messenger_->Fail(why);
  std::vector<std::shared_ptr<SessionImpl>> sessions;
  {
    MutexLock lock(mu_);
    job_state_ = std::max(job_state_, state);
    if (failed_) return;
    failed_ = true;
    for (const auto& [rank, session] : logical_workers_) sessions.push_back(session);
    if (free_running_ != nullptr) sessions.push_back(free_running_);
    changed_.NotifyAll();
  }
  FinishJoin(why);
  push_flow_->Open();
  pull_flow_->Open();
  for (const std::shared_ptr<SessionImpl>& session : sessions) session->Fail(why);
}

void ClientCore::OnRouting(const RoutingTable& table) {
  if (const absl::Status status = messenger_->Adopt(table); !status.ok()) {
    spdlog::error("refused a routing table of the scheduler: {}", status.ToString());
  }
  if (router_->current() != nullptr) FinishJoin(absl::OkStatus());
}

void ClientCore::OnJobState(JobState state, const std::string& failure) {
  if (state == FAILED) {
    Fail(absl::FailedPreconditionError(absl::StrCat("the job has failed: ", failure)), FAILED);
  } else if (state == STOPPED) {
    Fail(absl::FailedPreconditionError("the job was stopped"), STOPPED);
  }
  MutexLock lock(mu_);
  job_state_ = std::max(job_state_, state);
  changed_.NotifyAll();
}

Callback ClientCore::Count(Callback done) {
  {
    MutexLock lock(mu_);
    ++calls_;
  }
  return [self = shared_from_this(), done = std::move(done)](absl::Status status) mutable {
    done(std::move(status));
    done = nullptr;
    self->EndCall();
  };
}

void ClientCore::EndCall() {
  MutexLock lock(mu_);
  if (--calls_ == 0) changed_.NotifyAll();
}

absl::Status ClientCore::CheckRank(uint32_t rank) const {
  if (options_.role != WORKER_ROLE) {
    return absl::FailedPreconditionError(
        "only a WORKER_ROLE client hosts logical workers; see ClientOptions::role");
  }
  const uint32_t total = registration_.job().logical_workers();
  if (total > 0 && rank >= total) {
    return absl::OutOfRangeError(
        absl::StrCat("rank ", rank, "; the job has logical workers 0 to ", total - 1));
  }
  PAWL_RETURN_IF_ERROR(failure());
  MutexLock lock(mu_);
  if (!logical_workers_.contains(rank)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("logical worker ", rank, " is open already"));
}

LogicalWorkerAssignment ClientCore::OwnRank(uint32_t rank) const {
  for (const LogicalWorkerAssignment& own : registration_.logical_workers()) {
    if (own.rank() == rank) return own;
  }
  LogicalWorkerAssignment assignment;
  assignment.set_rank(rank);
  return assignment;
}

absl::StatusOr<LogicalWorker*> ClientCore::OpenLogicalWorker(
    const LogicalWorkerAssignment& assignment, uint64_t first_step) {
  const uint32_t rank = assignment.rank();
  PAWL_RETURN_IF_ERROR(CheckRank(rank));
  SessionImpl::Identity identity;
  identity.rank = rank;
  identity.first_step = first_step;
  identity.incarnation = assignment.incarnation();
  identity.ticket = assignment.ticket();
  auto session = std::make_shared<SessionImpl>(shared_from_this(), identity);
  {
    MutexLock lock(mu_);
    if (failed_) return failure();
    const bool is_new = logical_workers_.emplace(rank, session).second;
    if (!is_new)
      return absl::AlreadyExistsError(absl::StrCat("logical worker ", rank, " is open already"));
  }
  // A predecessor may have died between the end and the close, as the last one that could close it.
  if (clip_global_norm() > 0 && first_step > 0) session->CloseStep(first_step - 1);
  return session.get();
}

void ClientCore::TakeOver(const LogicalWorkerAssignment& assignment, const CallOptions& options,
                          absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> user_done) {
  const uint32_t rank = assignment.rank();
  if (absl::Status refused = CheckRank(rank); !refused.ok()) {
    user_done(std::move(refused));
    return;
  }
  const MonotonicTime deadline = Deadline(options);
  // The result, until the counted callback runs.
  auto step = std::make_shared<uint64_t>(0);
  Callback done = Count([self = shared_from_this(), rank, step, assignment,
                         user_done = std::move(user_done)](absl::Status status) mutable {
    if (!status.ok()) {
      user_done(Annotate(status, absl::StrCat("taking over logical worker ", rank)));
    } else {
      user_done(self->OpenLogicalWorker(assignment, *step));
    }
  });
  RequestHeader header;
  header.set_job_id(registration_.job_id());
  header.set_incarnation(assignment.incarnation() != 0 ? assignment.incarnation()
                                                       : registration_.incarnation());
  header.set_logical_worker(rank);
  header.set_ticket(assignment.ticket());
  pawl::TakeOver(*messenger_, header, router_->current()->partitions(), deadline,
                 [self = shared_from_this(), header, deadline, rank, step,
                  done = std::move(done)](absl::StatusOr<std::vector<uint64_t>> clocks) mutable {
                   if (!clocks.ok()) {
                     done(clocks.status());
                     return;
                   }
                   absl::StatusOr<Resumption> at =
                       ResumptionAt(*clocks, self->registration_.job().consistency().mode());
                   if (!at.ok() || at->behind.empty()) {
                     if (at.ok()) *step = at->step;
                     done(at.status());
                     return;
                   }
                   *step = at->step;
                   header.set_step(at->step - 1);
                   spdlog::info(
                       "rank {} had ended step {} in {} of {} partitions; ending it in the others",
                       rank, at->step - 1, clocks->size() - at->behind.size(), clocks->size());
                   std::make_shared<EndStepCall>(header, deadline, std::move(done))
                       ->Send(*self->messenger_, at->behind, {});
                 });
}

void ClientCore::CloseLogicalWorker(uint32_t rank) {
  std::shared_ptr<SessionImpl> session;
  {
    MutexLock lock(mu_);
    const auto it = logical_workers_.find(rank);
    if (it == logical_workers_.end()) return;
    session = std::move(it->second);
    logical_workers_.erase(it);
  }
  // Fails the calls that wait in the session; those in flight end by themselves and share it.
  session->Fail(absl::CancelledError(absl::StrCat("logical worker ", rank, " was closed")));
}

Session& ClientCore::free_running() {
  MutexLock lock(mu_);
  return *free_running_;
}

}  // namespace pawl
