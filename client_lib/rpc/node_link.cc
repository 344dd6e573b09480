#include "client_lib/rpc/node_link.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/random.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/futures.h"
#include "client_lib/rpc/lease.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/routing_changes.h"
#include "client_lib/rpc/version.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// The timeout of one attempt to register.
constexpr std::chrono::milliseconds kRegisterAttempt{1000};
// How long the scheduler holds one GetRouting call.
constexpr std::chrono::seconds kRoutingAttempt{10};
// An answer that takes longer than the lease is useless. With this many unanswered heartbeats, no
// more are sent until some have ended.
constexpr int kMaxHeartbeatsInFlight = 16;
constexpr std::chrono::milliseconds kConfirmAttempt{1000};
constexpr std::chrono::milliseconds kGoodbyeAttempt{500};
// Used if the scheduler sends none.
constexpr std::chrono::milliseconds kDefaultHeartbeatInterval{200};
constexpr std::chrono::milliseconds kDefaultLease{3000};
// A longer silence is logged.
constexpr std::chrono::seconds kLoggedSilence{5};
// An event must not block; one that takes this long is a bug.
constexpr std::chrono::seconds kCloseLimit{60};

// A limit is reached; room may become free.
bool IsFull(const absl::Status& status) { return absl::IsResourceExhausted(status); }

// The address or rank belongs to another node, which may be dead, or to an earlier incarnation of
// this one. The scheduler knows once that node's lease has expired.
bool MayBelongToADeadNode(const absl::Status& status) {
  return absl::IsAlreadyExists(status) && !IsFinal(status);
}
// Longer than any sensible lease: a node that has kept an address or a rank for this long is alive.
constexpr std::chrono::seconds kOthersLeaseLimit{30};

absl::Status LinkClosed() { return absl::CancelledError("the link to the scheduler is closed"); }

bool IsEnd(JobState state) { return state == COMPLETED || state == FAILED || state == STOPPED; }

}  // namespace

// All state, so that calls in flight can outlive the link. Each Register starts an incarnation;
// callbacks of an earlier one have no effect.
class NodeLink::State : public std::enable_shared_from_this<State> {
 public:
  State(ControlChannel& channel, ControlChannel& routing_channel, const Clock& clock,
        std::string scheduler, Events events)
      : channel_(channel),
        routing_channel_(routing_channel),
        clock_(clock),
        scheduler_(std::move(scheduler)),
        events_(std::move(events)) {}

  void Register(RegisterRequest request, MonotonicTime deadline, Registered done) {
    auto attempts = std::make_shared<Registration>();
    attempts->request = std::move(request);
    attempts->request.set_process_nonce(process_nonce_);
    attempts->request.set_version(kVersion);
    attempts->request.set_oldest_protocol(
        attempts->request.role() == SERVER_ROLE ? kOldestServerProtocol : kOldestProtocol);
    if (attempts->request.role() == SERVER_ROLE) attempts->request.set_rebuild_challenge(0);
    attempts->request.set_newest_protocol(kNewestProtocol);
    attempts->deadline = deadline;
    auto answer = std::make_shared<Registered>(std::move(done));
    bool closed;
    {
      MutexLock lock(mu_);
      closed = closed_;
      if (!closed) {
        attempts->registration = ++registration_count_;
        attempts->request.set_registration(attempts->registration);
        started_ = false;
        registered_ = false;
        SetLease(MonotonicTime::min());
        job_started_.store(false, std::memory_order_release);
        std::swap(registering_, answer);
      }
    }
    if (closed) return (*answer)(LinkClosed());
    if (answer != nullptr) (*answer)(absl::CancelledError("the node registers again"));
    AttemptRegistration(attempts);
  }

  void Start() {
    uint64_t registration;
    {
      MutexLock lock(mu_);
      if (closed_ || !registered_ || started_) return;
      started_ = true;
      registration = registration_count_;
      routing_epoch_ = 0;
      acts_by_routing_ = true;
      routing_ = nullptr;
      heartbeats_in_flight_ = 0;
      told_to_leave_ = false;
    }
    // On another thread: the caller may be in an event.
    channel_.After(MonotonicDuration::zero(),
                   [self = shared_from_this(), registration] { self->Beat(registration); });
    routing_channel_.After(MonotonicDuration::zero(), [self = shared_from_this(), registration] {
      self->PollRouting(registration, 0);
    });
  }

  bool ConfirmRouting(uint64_t epoch, absl::AnyInvocable<void(absl::Status)> done) {
    ConfirmRoutingRequest request;
    uint64_t registration;
    {
      MutexLock lock(mu_);
      if (closed_ || !started_) return false;
      registration = registration_count_;
      request.set_node(registration_.node());
      request.set_incarnation(registration_.incarnation());
    }
    request.set_epoch(epoch);
    routing_channel_.Call("/pawl.Scheduler/ConfirmRouting", EncodeSmall(request), kConfirmAttempt,
                          [self = shared_from_this(), registration, done = std::move(done)](
                              absl::Status status, IncomingMessage) mutable {
                            if (!self->BeginEvent(registration, kRoutingEvent)) return;
                            done(std::move(status));
                            self->EndEvent(kRoutingEvent);
                          });
    return true;
  }

  void Close() {
    GoodbyeRequest goodbye;
    std::shared_ptr<Registered> registering;
    {
      MutexLock lock(mu_);
      if (closed_) return;
      closed_ = true;
      registering = std::exchange(registering_, nullptr);
      SetLease(MonotonicTime::min());
      if (registered_) {
        goodbye.set_node(registration_.node());
        goodbye.set_incarnation(registration_.incarnation());
      }
    }
    if (registering != nullptr) (*registering)(LinkClosed());
    if (!goodbye.node().empty()) {
      std::future<absl::Status> answer;
      channel_.Call("/pawl.Scheduler/Goodbye", EncodeSmall(goodbye), kGoodbyeAttempt,
                    [done = Fulfilling(answer)](absl::Status status, IncomingMessage) mutable {
                      done(std::move(status));
                    });
      // If this message is lost, the lease simply expires.
      if (answer.wait_for(2 * kGoodbyeAttempt) == std::future_status::ready) {
        if (const absl::Status status = answer.get(); !status.ok()) {
          spdlog::info("goodbye to the scheduler at {}: {}", scheduler_, status.ToString());
        }
      }
    }
    MutexLock lock(mu_);
    const MonotonicTime limit = Clock::Real().Now() + kCloseLimit;
    while (running_ != kNone) {
      if (!event_ended_.WaitUntil(mu_, limit) && running_ != kNone) {
        spdlog::critical("an event of the link to the scheduler has blocked for {} s",
                         kCloseLimit.count());
        std::abort();
      }
    }
  }

  Identity identity() const {
    MutexLock lock(mu_);
    return {registration_.node(), registration_.incarnation()};
  }
  bool job_started() const { return job_started_.load(std::memory_order_acquire); }
  MonotonicTime lease_until() const {
    return MonotonicTime(MonotonicDuration(lease_until_.load(std::memory_order_acquire)));
  }
  MonotonicDuration silence() const {
    MutexLock lock(mu_);
    return answered_ ? clock_.Now() - last_answer_ : MonotonicDuration::zero();
  }

 private:
  struct Registration {
    RegisterRequest request;
    MonotonicTime deadline;
    uint64_t registration = 0;
    int retries = 0;
    // The scheduler has said once that the incarnation has ended.
    bool is_repeated = false;
    absl::Status last_error;
    // When the first refusal because of a possibly dead node came.
    std::optional<MonotonicTime> taken_since;
  };

  // Events of one kind run one at a time. Adopting a routing table may take long and does not delay
  // heartbeats. The events that start and end an incarnation run alone.
  using EventKinds = uint32_t;
  static constexpr EventKinds kNone = 0;
  static constexpr EventKinds kHeartbeatEvent = 1;
  static constexpr EventKinds kRoutingEvent = 2;
  static constexpr EventKinds kAllEvents = kHeartbeatEvent | kRoutingEvent;

  // Acquires the right to run an event of these kinds; EndEvent with the same kinds releases it.
  // Returns false if the incarnation has ended or the link is closed.
  bool BeginEvent(uint64_t registration, EventKinds kinds) {
    MutexLock lock(mu_);
    // Bounded by the duration of events.
    while ((running_ & kinds) != 0 && !closed_ && registration == registration_count_) {
      event_ended_.WaitUntil(mu_, Clock::Real().Now() + kLoggedSilence);
    }
    if (closed_ || registration != registration_count_) return false;
    running_ |= kinds;
    return true;
  }
  void EndEvent(EventKinds kinds) {
    MutexLock lock(mu_);
    running_ &= ~kinds;
    event_ended_.NotifyAll();
  }

  bool HasEnded(uint64_t registration) const {
    MutexLock lock(mu_);
    return closed_ || registration != registration_count_;
  }

  void SetLease(MonotonicTime until) PAWL_REQUIRES(mu_) {
    lease_until_.store(until.time_since_epoch().count(), std::memory_order_release);
  }

  // Records that the scheduler has answered a message sent at `sent`, by the clock of leases.
  void RenewLease(MonotonicTime sent) PAWL_REQUIRES(mu_) {
    const MonotonicTime now = clock_.Now();
    if (std::exchange(silence_logged_, false)) {
      spdlog::info("the scheduler at {} answers again, after {:.1f} s", scheduler_,
                   Seconds(now - last_answer_));
    }
    answered_ = true;
    last_answer_ = now;
    SetLease(std::max(lease_until(), sent + HeldFor(lease_)));
  }

  void LogSilence(const absl::Status& error) PAWL_REQUIRES(mu_) {
    if (!answered_ || silence_logged_ || clock_.Now() - last_answer_ < kLoggedSilence) return;
    silence_logged_ = true;
    spdlog::warn("the scheduler at {} has not answered for {:.1f} s, continuing without it: {}",
                 scheduler_, Seconds(clock_.Now() - last_answer_), error.ToString());
  }

  void AttemptRegistration(const std::shared_ptr<Registration>& attempts) {
    const MonotonicTime now = clock_.Now();
    const MonotonicTime sent = clock_.LeaseNow();
    const MonotonicDuration left = attempts->deadline - now;
    if (left <= MonotonicDuration::zero()) {
      // On another thread: the caller may be in an event.
      channel_.After(MonotonicDuration::zero(), [self = shared_from_this(), attempts] {
        self->FinishRegistration(
            attempts->registration,
            absl::DeadlineExceededError(
                absl::StrCat("registering with the scheduler at ", self->scheduler_,
                             ": timed out; the last error: ", attempts->last_error.message())));
      });
      return;
    }
    if (HasEnded(attempts->registration)) return;
    channel_.Call(
        "/pawl.Scheduler/Register", EncodeSmall(attempts->request),
        std::min<MonotonicDuration>(kRegisterAttempt, left),
        [self = shared_from_this(), attempts, sent](absl::Status status, IncomingMessage answer) {
          self->OnRegistration(attempts, sent, std::move(status), answer);
        });
  }

  // `sent` is by the clock of leases.
  void OnRegistration(const std::shared_ptr<Registration>& attempts, MonotonicTime sent,
                      absl::Status status, const IncomingMessage& answer) {
    RegisterResponse response;
    if (status.ok()) status = DecodeControl(answer.bytes, response);
    if (status.ok()) {
      status = CommonProtocol({response.protocol(), response.protocol()},
                              absl::StrCat("the scheduler (Pawl ", response.version(), ")"))
                   .status();
    }
    if (status.ok()) {
      {
        MutexLock lock(mu_);
        if (closed_ || attempts->registration != registration_count_) return;
        registration_ = response;
        registered_ = true;
        channel_.SetNodeTicket(response.node_ticket());
        routing_channel_.SetNodeTicket(response.node_ticket());
        lease_ = response.lease_ms() > 0 ? std::chrono::milliseconds(response.lease_ms())
                                         : kDefaultLease;
        RenewLease(sent);
      }
      FinishRegistration(attempts->registration, std::move(response));
      return;
    }
    if (absl::IsAborted(status) && !attempts->is_repeated) return RegisterAgain(*attempts);
    // The lost answer may have started another incarnation, which may end in the same way.
    if (IsUnanswered(status)) attempts->is_repeated = false;
    if (const uint64_t challenge = RebuildChallengeOf(status);
        challenge != 0 && challenge != attempts->request.rebuild_challenge()) {
      attempts->request.set_rebuild_challenge(challenge);
      attempts->retries = 0;
    }
    const MonotonicDuration delay = PushbackOf(status, Backoff(attempts->retries, RandomNumber()));
    const bool claims_dead_node = MayBelongToADeadNode(status) &&
                                  sent - attempts->taken_since.value_or(sent) <= kOthersLeaseLimit;
    if (claims_dead_node && !attempts->taken_since.has_value()) attempts->taken_since = sent;
    if (!(IsTransientError(status) || IsFull(status) || claims_dead_node) ||
        clock_.Now() >= attempts->deadline - delay) {
      absl::Status refused(status.code(), absl::StrCat("registering with the scheduler at ",
                                                       scheduler_, ": ", status.message()));
      if (IsFinal(status)) refused.SetPayload(kPushbackPayloadUrl, absl::Cord(kNeverAgain));
      FinishRegistration(attempts->registration, std::move(refused));
      return;
    }
    if (HasEnded(attempts->registration)) return;
    if (claims_dead_node && !absl::IsAlreadyExists(attempts->last_error)) {
      spdlog::warn("the scheduler at {}: {}; trying again, because that node's lease may expire",
                   scheduler_, std::string(status.message()));
    }
    ++attempts->retries;
    attempts->last_error = std::move(status);
    channel_.After(delay,
                   [self = shared_from_this(), attempts] { self->AttemptRegistration(attempts); });
  }

  // The incarnation may have ended because its answer was lost for longer than a lease, so try once
  // more under a higher number. If another process has become this node, that is refused too.
  void RegisterAgain(const Registration& before) {
    auto attempts = std::make_shared<Registration>(before);
    attempts->is_repeated = true;
    {
      MutexLock lock(mu_);
      if (closed_ || before.registration != registration_count_) return;
      attempts->registration = ++registration_count_;
      attempts->request.set_registration(attempts->registration);
    }
    AttemptRegistration(attempts);
  }

  // No effect if the incarnation has ended: the call that ended it has answered.
  void FinishRegistration(uint64_t registration, absl::StatusOr<RegisterResponse> answer) {
    if (!BeginEvent(registration, kAllEvents)) return;
    std::shared_ptr<Registered> done;
    {
      MutexLock lock(mu_);
      done = std::exchange(registering_, nullptr);
    }
    if (done != nullptr) (*done)(std::move(answer));
    EndEvent(kAllEvents);
  }

  void Beat(uint64_t registration) {
    HeartbeatRequest request;
    MonotonicDuration interval;
    MonotonicDuration timeout;
    bool send;
    {
      MutexLock lock(mu_);
      if (closed_ || registration != registration_count_) return;
      request.set_node(registration_.node());
      request.set_incarnation(registration_.incarnation());
      request.set_job_id(registration_.job_id());
      request.set_challenge(challenge_);
      interval = registration_.heartbeat_interval_ms() > 0
                     ? std::chrono::milliseconds(registration_.heartbeat_interval_ms())
                     : kDefaultHeartbeatInterval;
      timeout = lease_;
      send = heartbeats_in_flight_ < kMaxHeartbeatsInFlight;
      if (send) ++heartbeats_in_flight_;
    }
    // The next heartbeat is sent on time whether or not this one has been answered: on a busy
    // machine answers may take long, and sending is what keeps the lease.
    channel_.After(interval,
                   [self = shared_from_this(), registration] { self->Beat(registration); });
    if (!send) return;
    if (events_.fill_heartbeat != nullptr) {
      if (!BeginEvent(registration, kHeartbeatEvent)) return;
      events_.fill_heartbeat(request);
      EndEvent(kHeartbeatEvent);
    }
    const MonotonicTime sent = clock_.LeaseNow();
    OutgoingMessage message = EncodeSmall(request);
    if (events_.heartbeat_answered == nullptr) request.Clear();
    channel_.Call("/pawl.Scheduler/Heartbeat", std::move(message), timeout,
                  [self = shared_from_this(), registration, sent, request = std::move(request)](
                      absl::Status status, IncomingMessage answer) {
                    self->OnBeat(registration, sent, request, std::move(status), answer);
                  });
  }

  // `request`: empty without Events::heartbeat_answered.
  void OnBeat(uint64_t registration, MonotonicTime sent, const HeartbeatRequest& request,
              absl::Status status, const IncomingMessage& answer) {
    HeartbeatResponse response;
    if (status.ok()) status = DecodeControl(answer.bytes, response);
    if (absl::IsFailedPrecondition(status)) {
      // Every call of a failed job gets this status; its message is the failure's.
      response.set_job_state(FAILED);
      response.set_failure(std::string(status.message()));
      status = absl::OkStatus();
    }
    bool state_changed = false;
    bool disowned = false;
    bool leave_requested = false;
    {
      MutexLock lock(mu_);
      if (closed_ || registration != registration_count_) return;
      --heartbeats_in_flight_;
      if (status.ok()) {
        if (response.lease_ms() > 0) lease_ = std::chrono::milliseconds(response.lease_ms());
        challenge_ = response.challenge();
        if (response.job_started()) job_started_.store(true, std::memory_order_release);
        RenewLease(sent);
        // Answers may overtake each other; the job's state must not go back.
        state_changed = response.job_state() > job_state_ && !IsEnd(job_state_);
        if (state_changed) job_state_ = response.job_state();
        leave_requested = response.drain() && !std::exchange(told_to_leave_, true);
      } else if (absl::IsAborted(status) || absl::IsNotFound(status)) {
        disowned = true;
        SetLease(MonotonicTime::min());
        registered_ = false;
      } else {
        LogSilence(status);
      }
    }
    if (status.ok() && events_.heartbeat_answered != nullptr &&
        BeginEvent(registration, kHeartbeatEvent)) {
      events_.heartbeat_answered(request);
      EndEvent(kHeartbeatEvent);
    }
    if (disowned) {
      spdlog::warn("the scheduler at {} does not know this incarnation of the node: {}", scheduler_,
                   status.ToString());
      if (!BeginEvent(registration, kAllEvents)) return;
      {
        // Further answers of this incarnation are ignored. Register, in the event or later, starts
        // the next one.
        MutexLock lock(mu_);
        ++registration_count_;
      }
      if (events_.disowned != nullptr) events_.disowned(status);
      EndEvent(kAllEvents);
    } else if (state_changed && events_.job_state != nullptr &&
               BeginEvent(registration, kHeartbeatEvent)) {
      events_.job_state(response.job_state(), response.failure());
      EndEvent(kHeartbeatEvent);
    }
    if (leave_requested && events_.leave_requested != nullptr &&
        BeginEvent(registration, kHeartbeatEvent)) {
      events_.leave_requested();
      EndEvent(kHeartbeatEvent);
    }
  }

  void PollRouting(uint64_t registration, int retries) {
    GetRoutingRequest request;
    {
      MutexLock lock(mu_);
      if (closed_ || registration != registration_count_) return;
      request.set_newer_than_epoch(routing_epoch_);
      request.set_accepts_changes(routing_ != nullptr);
      if (acts_by_routing_) {
        request.set_node(registration_.node());
        request.set_incarnation(registration_.incarnation());
      }
    }
    const MonotonicTime sent = clock_.Now();
    routing_channel_.Call("/pawl.Scheduler/GetRouting", EncodeSmall(request), kRoutingAttempt,
                          [self = shared_from_this(), registration, retries, sent](
                              absl::Status status, IncomingMessage answer) {
                            self->OnRouting(registration, retries, sent, std::move(status), answer);
                          });
  }

  void OnRouting(uint64_t registration, int retries, MonotonicTime sent, absl::Status status,
                 const IncomingMessage& answer) {
    auto table = std::make_shared<RoutingTable>();
    bool is_newer = false;
    if (status.ok()) status = DecodeControl(answer.bytes, *table);
    if (status.ok() && table->since_epoch() != 0) status = Complete(*table);
    {
      MutexLock lock(mu_);
      if (closed_ || registration != registration_count_) return;
      is_newer = status.ok() && table->epoch() > routing_epoch_;
      if (is_newer) {
        routing_epoch_ = table->epoch();
        routing_ = table;
      }
      // The changes do not fit; the whole table will.
      if (absl::IsInvalidArgument(status)) routing_ = nullptr;
    }
    if (is_newer && events_.routing != nullptr) {
      if (!BeginEvent(registration, kRoutingEvent)) return;
      events_.routing(*table);
      const bool acts_by_it = events_.acts_by_routing == nullptr || events_.acts_by_routing();
      EndEvent(kRoutingEvent);
      MutexLock lock(mu_);
      acts_by_routing_ = acts_by_it;
    }
    // The scheduler held the call for its whole duration: nothing new.
    const bool waited =
        absl::IsDeadlineExceeded(status) && clock_.Now() - sent >= kRoutingAttempt / 2;
    if (is_newer || waited) {
      PollRouting(registration, 0);
      return;
    }
    routing_channel_.After(PushbackOf(status, Backoff(retries, RandomNumber())),
                           [self = shared_from_this(), registration, retries] {
                             self->PollRouting(registration, retries + 1);
                           });
  }

  // Applies the changes to the present table.
  absl::Status Complete(RoutingTable& table) {
    std::shared_ptr<const RoutingTable> base;
    {
      MutexLock lock(mu_);
      base = routing_;
    }
    if (base == nullptr)
      return absl::InvalidArgumentError("routing changes arrived before a whole table");
    absl::StatusOr<RoutingTable> whole = ApplyRoutingChanges(*base, table);
    if (!whole.ok()) {
      spdlog::warn("the scheduler at {}: {}; asking for the whole table", scheduler_,
                   whole.status().ToString());
      return whole.status();
    }
    table = *std::move(whole);
    return absl::OkStatus();
  }

  ControlChannel& channel_;
  ControlChannel& routing_channel_;
  const Clock& clock_;
  const std::string scheduler_;
  const Events events_;
  const uint64_t process_nonce_ = RandomNumber();

  std::atomic<bool> job_started_{false};
  std::atomic<MonotonicDuration::rep> lease_until_{MonotonicTime::min().time_since_epoch().count()};

  mutable Mutex mu_;
  CondVar event_ended_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  // Grows with every Register, and when the scheduler ends an incarnation.
  uint64_t registration_count_ PAWL_GUARDED_BY(mu_) = 0;
  // Null unless a Register of this incarnation is unanswered.
  std::shared_ptr<Registered> registering_ PAWL_GUARDED_BY(mu_);
  bool registered_ PAWL_GUARDED_BY(mu_) = false;
  bool started_ PAWL_GUARDED_BY(mu_) = false;
  // The kinds of the running events.
  EventKinds running_ PAWL_GUARDED_BY(mu_) = kNone;
  RegisterResponse registration_ PAWL_GUARDED_BY(mu_);
  MonotonicDuration lease_ PAWL_GUARDED_BY(mu_) = kDefaultLease;
  bool answered_ PAWL_GUARDED_BY(mu_) = false;
  bool silence_logged_ PAWL_GUARDED_BY(mu_) = false;
  MonotonicTime last_answer_ PAWL_GUARDED_BY(mu_);
  JobState job_state_ PAWL_GUARDED_BY(mu_) = JOB_STATE_UNSPECIFIED;
  uint64_t routing_epoch_ PAWL_GUARDED_BY(mu_) = 0;
  bool acts_by_routing_ PAWL_GUARDED_BY(mu_) = true;
  // The table to which changes will be applied; null: ask for the whole table.
  std::shared_ptr<const RoutingTable> routing_ PAWL_GUARDED_BY(mu_);
  int heartbeats_in_flight_ PAWL_GUARDED_BY(mu_) = 0;
  bool told_to_leave_ PAWL_GUARDED_BY(mu_) = false;
  // HeartbeatResponse.challenge of the latest answer.
  uint64_t challenge_ PAWL_GUARDED_BY(mu_) = 0;
};

NodeLink::NodeLink(ControlChannel& channel, const Clock& clock, std::string scheduler,
                   Events events, ControlChannel* routing_channel)
    : state_(std::make_shared<State>(channel,
                                     routing_channel == nullptr ? channel : *routing_channel, clock,
                                     std::move(scheduler), std::move(events))) {}

NodeLink::~NodeLink() { Close(); }

void NodeLink::Register(RegisterRequest request, MonotonicTime deadline, Registered done) {
  state_->Register(std::move(request), deadline, std::move(done));
}

void NodeLink::Start() { state_->Start(); }
bool NodeLink::ConfirmRouting(uint64_t epoch, absl::AnyInvocable<void(absl::Status)> done) {
  return state_->ConfirmRouting(epoch, std::move(done));
}
void NodeLink::Close() { state_->Close(); }
NodeLink::Identity NodeLink::identity() const { return state_->identity(); }
MonotonicTime NodeLink::lease_until() const { return state_->lease_until(); }
bool NodeLink::job_started() const { return state_->job_started(); }
MonotonicDuration NodeLink::silence() const { return state_->silence(); }

}  // namespace pawl
