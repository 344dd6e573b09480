#include "client_lib/client_core.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/sender_session.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// One attempt of a control call that does not wait for others by design.
constexpr std::chrono::milliseconds kShortAttempt{500};
// One attempt to get routing, which waits for servers; short, so that a failure is noticed meanwhile.
constexpr std::chrono::milliseconds kRoutingAttempt{1000};
constexpr std::chrono::milliseconds kDefaultHeartbeatInterval{200};
// A scheduler that has not answered for so long is taken for dead, as by the servers (server/scheduler_link.h).
constexpr std::chrono::seconds kMaxSchedulerSilence{5};
// After a failure everything under way ends at once, apart from callbacks of the user's.
constexpr std::chrono::seconds kCloseLimit{60};

std::string DefaultDescription() {
  char host[256] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

uint64_t RandomNonce() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

ClientCore::ClientCore(ClientOptions options, Transport& transport, ControlChannel& control)
    : options_(std::move(options)),
      clock_(*options_.clock),
      transport_(transport),
      control_(control),
      deadlines_(std::make_shared<DeadlineQueue>(transport_, clock_)),
      push_flow_(std::make_shared<FlowControl>(options_.max_bytes_in_flight, kMaxWaitingCalls, deadlines_)),
      pull_flow_(std::make_shared<FlowControl>(options_.max_bytes_in_flight, kMaxWaitingCalls, deadlines_)) {}

ClientCore::~ClientCore() = default;

MonotonicTime ClientCore::Deadline(const CallOptions& options) const {
  return clock_.Now() + options.timeout.value_or(options_.call_timeout);
}

absl::Status ClientCore::Join() {
  const MonotonicTime deadline = clock_.Now() + options_.connect_timeout;

  auto request = std::make_shared<RegisterRequest>();
  request->set_role(options_.role);
  request->set_process_nonce(RandomNonce());
  request->set_description(options_.description.empty() ? DefaultDescription() : options_.description);
  for (const uint32_t rank : options_.logical_workers) request->add_logical_workers(rank);
  auto response = std::make_shared<RegisterResponse>();
  {
    std::promise<absl::Status> done;
    Control("Register", request, response, deadline, kShortAttempt,
            [&done](absl::Status status) { done.set_value(std::move(status)); });
    PAWL_RETURN_IF_ERROR(
        Annotate(done.get_future().get(), absl::StrCat("registering with the scheduler at ", options_.scheduler)));
  }
  registration_ = *response;
  router_ = std::make_unique<Router>(registration_.job_id());
  messenger_ = std::make_shared<Messenger>(transport_, clock_, *router_, deadlines_);
  {
    MutexLock lock(mu_);
    last_heartbeat_ = clock_.Now();
  }
  ScheduleHeartbeat();

  auto routing = std::make_shared<RoutingTable>();
  {
    std::promise<absl::Status> done;
    Control("GetRouting", std::make_shared<GetRoutingRequest>(), routing, deadline, kRoutingAttempt,
            [&done](absl::Status status) { done.set_value(std::move(status)); });
    PAWL_RETURN_IF_ERROR(Annotate(done.get_future().get(), "waiting for the job's servers"));
  }
  PAWL_RETURN_IF_ERROR(router_->Adopt(*routing).status());

  SenderSession::Identity identity;
  if (options_.role == CLIENT_ROLE) identity.client = registration_.client();
  MutexLock lock(mu_);
  free_running_ = std::make_shared<SenderSession>(shared_from_this(), identity);
  return absl::OkStatus();
}

void ClientCore::Close() {
  {
    MutexLock lock(mu_);
    closing_ = true;
  }
  if (messenger_ != nullptr) Fail(absl::CancelledError("the client is being destroyed"));
  {
    const MonotonicTime limit = Clock::Real().Now() + kCloseLimit;
    MutexLock lock(mu_);
    while (calls_ > 0) {
      if (!changed_.WaitUntil(mu_, limit) && calls_ > 0) {
        spdlog::critical("{} calls have not ended {} s after the client was closed; does a callback block?", calls_,
                         kCloseLimit.count());
        std::abort();
      }
    }
  }
  if (!registration_.node().empty()) {
    GoodbyeRequest goodbye;
    goodbye.set_node(registration_.node());
    goodbye.set_incarnation(registration_.incarnation());
    auto done = std::make_shared<std::promise<void>>();
    control_.Call("/pawl.Scheduler/Goodbye", EncodeSmall(goodbye), kShortAttempt,
                  [done](absl::Status, IncomingMessage) { done->set_value(); });
    // Nobody minds if it is lost: the lease runs out.
    done->get_future().wait_for(kShortAttempt * 2);
  }
  control_.Shutdown();
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
  const MonotonicTime deadline = Clock::Real().Now() + timeout;
  MutexLock lock(mu_);
  for (;;) {
    if (failed_ || job_state_ == COMPLETED || job_state_ == FAILED || job_state_ == STOPPED) return true;
    if (!changed_.WaitUntil(mu_, deadline) && Clock::Real().Now() >= deadline) return false;
  }
}

void ClientCore::SetProgress(const WorkerProgress& progress) {
  MutexLock lock(mu_);
  progress_ = progress;
}

void ClientCore::Fail(const absl::Status& why, JobState state) {
  deadlines_->Close();
  // Before the rest, so that nothing is sent again, and whoever is woken finds the reason.
  messenger_->Fail(why);
  std::vector<std::shared_ptr<SenderSession>> sessions;
  {
    MutexLock lock(mu_);
    job_state_ = std::max(job_state_, state);
    if (failed_) return;
    failed_ = true;
    for (const auto& [rank, session] : logical_workers_) sessions.push_back(session);
    if (free_running_ != nullptr) sessions.push_back(free_running_);
    changed_.NotifyAll();
  }
  push_flow_->Open();
  pull_flow_->Open();
  for (const std::shared_ptr<SenderSession>& session : sessions) session->Fail(why);
}

void ClientCore::ScheduleHeartbeat() {
  MonotonicDuration interval = std::chrono::milliseconds(registration_.heartbeat_interval_ms());
  if (interval == MonotonicDuration::zero()) interval = kDefaultHeartbeatInterval;
  {
    MutexLock lock(mu_);
    if (closing_) return;
  }
  control_.After(interval, [self = shared_from_this()] { self->SendHeartbeat(); });
}

void ClientCore::SendHeartbeat() {
  HeartbeatRequest request;
  request.set_node(registration_.node());
  request.set_incarnation(registration_.incarnation());
  {
    MutexLock lock(mu_);
    if (closing_) return;
    if (options_.role == WORKER_ROLE) *request.mutable_worker() = progress_;
  }
  // The next one goes out in its turn, whether this one has been answered or not: on a busy machine an
  // answer may take long, and it is the sending that keeps the lease.
  ScheduleHeartbeat();
  control_.Call("/pawl.Scheduler/Heartbeat", EncodeSmall(request), kShortAttempt,
                [self = shared_from_this()](absl::Status status, IncomingMessage answer) {
                  HeartbeatResponse response;
                  if (status.ok()) status = DecodeSmall(answer.bytes, response);
                  self->OnHeartbeat(status, response);
                });
}

void ClientCore::OnHeartbeat(const absl::Status& status, const HeartbeatResponse& response) {
  const MonotonicTime now = clock_.Now();
  if (!status.ok()) {
    switch (status.code()) {
      case absl::StatusCode::kAborted:
      case absl::StatusCode::kFailedPrecondition:
      case absl::StatusCode::kNotFound:
        Fail(status);
        return;
      default:
        break;
    }
    MonotonicDuration silence;
    {
      MutexLock lock(mu_);
      silence = now - last_heartbeat_;
    }
    if (silence > kMaxSchedulerSilence) {
      Fail(absl::UnavailableError(absl::StrCat("the scheduler at ", options_.scheduler, " has not answered for ",
                                               static_cast<int64_t>(Seconds(silence)), " s; the last error: ",
                                               status.message())));
    }
    return;
  }
  if (response.job_state() == FAILED) {
    Fail(absl::FailedPreconditionError(absl::StrCat("the job has failed: ", response.failure())), FAILED);
  } else if (response.job_state() == STOPPED) {
    Fail(absl::FailedPreconditionError("the job was stopped"), STOPPED);
  }
  {
    MutexLock lock(mu_);
    last_heartbeat_ = now;
    // Answers may overtake each other; the job's state only goes forward.
    if (job_state_ < response.job_state()) {
      job_state_ = response.job_state();
      changed_.NotifyAll();
    }
  }
  const std::shared_ptr<const Routing> routing = router_->current();
  if (routing != nullptr && response.routing_epoch() > routing->epoch()) FetchRouting();
}

void ClientCore::FetchRouting() {
  {
    MutexLock lock(mu_);
    if (std::exchange(fetching_routing_, true)) return;
  }
  auto request = std::make_shared<GetRoutingRequest>();
  request->set_newer_than_epoch(router_->current()->epoch());
  auto table = std::make_shared<RoutingTable>();
  Control("GetRouting", request, table, clock_.Now() + kRoutingAttempt, kRoutingAttempt,
          [self = shared_from_this(), table](absl::Status status) {
            if (status.ok()) status = self->router_->Adopt(*table).status();
            if (!status.ok()) spdlog::warn("no newer routing table: {}", status.ToString());
            MutexLock lock(self->mu_);
            self->fetching_routing_ = false;
          });
}

void ClientCore::Control(const std::string& method, std::shared_ptr<const google::protobuf::MessageLite> request,
                         std::shared_ptr<google::protobuf::MessageLite> response, MonotonicTime deadline,
                         MonotonicDuration attempt, Callback done) {
  struct State {
    std::string name;
    std::shared_ptr<const google::protobuf::MessageLite> request;
    std::shared_ptr<google::protobuf::MessageLite> response;
    MonotonicTime deadline;
    MonotonicDuration attempt;
    Callback done;
    int retries = 0;
  };
  auto state = std::make_shared<State>(
      State{"/pawl.Scheduler/" + method, std::move(request), std::move(response), deadline, attempt, std::move(done)});
  // Holds itself as long as it has attempts to make.
  struct Attempt {
    static void Make(const std::shared_ptr<ClientCore>& core, const std::shared_ptr<State>& state) {
      const absl::Status why = core->messenger_ == nullptr ? absl::OkStatus() : core->failure();
      const MonotonicDuration left = state->deadline - core->clock_.Now();
      if (!why.ok() || left <= MonotonicDuration::zero()) {
        state->done(why.ok() ? absl::DeadlineExceededError("the scheduler did not answer in time") : why);
        return;
      }
      core->control_.Call(state->name, EncodeSmall(*state->request), std::min(state->attempt, left),
                          [core, state](absl::Status status, IncomingMessage answer) {
                            End(core, state, status, answer);
                          });
    }
    static void End(const std::shared_ptr<ClientCore>& core, const std::shared_ptr<State>& state, absl::Status status,
                    const IncomingMessage& answer) {
      if (status.ok()) {
        std::string bytes(answer.bytes.size(), '\0');
        answer.bytes.CopyTo(bytes.data());
        if (!state->response->ParseFromString(bytes)) {
          status = absl::InternalError("the scheduler's answer is malformed");
        }
        state->done(status);
        return;
      }
      const absl::Status why = core->messenger_ == nullptr ? absl::OkStatus() : core->failure();
      const bool again = status.code() == absl::StatusCode::kUnavailable ||
                         status.code() == absl::StatusCode::kDeadlineExceeded;
      const MonotonicDuration delay = Backoff(state->retries, std::random_device()());
      if (!why.ok() || !again || core->clock_.Now() + delay >= state->deadline) {
        state->done(why.ok() ? status : why);
        return;
      }
      ++state->retries;
      core->control_.After(delay, [core, state] { Make(core, state); });
    }
  };
  Attempt::Make(shared_from_this(), state);
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

absl::StatusOr<LogicalWorker*> ClientCore::OpenLogicalWorker(uint32_t rank, uint64_t first_step) {
  if (options_.role != WORKER_ROLE) {
    return absl::FailedPreconditionError("only a WORKER_ROLE client hosts logical workers; see ClientOptions::role");
  }
  const uint32_t total = registration_.job().logical_workers();
  if (total > 0 && rank >= total) {
    return absl::OutOfRangeError(absl::StrCat("rank ", rank, "; the job has logical workers 0 to ", total - 1));
  }
  PAWL_RETURN_IF_ERROR(failure());
  SenderSession::Identity identity;
  identity.rank = rank;
  identity.first_step = first_step;
  auto session = std::make_shared<SenderSession>(shared_from_this(), identity);
  MutexLock lock(mu_);
  if (failed_) return failure();
  const auto [it, is_new] = logical_workers_.emplace(rank, std::move(session));
  if (!is_new) return absl::AlreadyExistsError(absl::StrCat("logical worker ", rank, " is open already"));
  return it->second.get();
}

Session& ClientCore::free_running() {
  MutexLock lock(mu_);
  return *free_running_;
}

}  // namespace pawl
