#include "tests/simulation/simulated_network.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// By then keepalive has detected a dead connection.
constexpr std::chrono::seconds kKeepalive{4};
// No message to the scheduler is repeated later than this.
constexpr std::chrono::seconds kLatest{15};

IncomingMessage Incoming(const std::shared_ptr<const std::string>& bytes) {
  IncomingMessage message;
  message.bytes.Append(bytes->data(), bytes->size());
  message.owner = bytes;
  return message;
}

std::string Flat(const ByteView& bytes) {
  std::string flat(bytes.size(), '\0');
  bytes.CopyTo(flat.data());
  return flat;
}

}  // namespace

std::string_view RpcName(Method method) {
  switch (method) {
    case Method::kPush:
      return "/pawl.Parameter/Push";
    case Method::kPull:
      return "/pawl.Parameter/Pull";
    case Method::kScan:
      return "/pawl.Parameter/Scan";
    case Method::kEndStep:
      return "/pawl.Parameter/EndStep";
    case Method::kTakeOver:
      return "/pawl.Parameter/TakeOver";
    case Method::kReplicate:
      return "/pawl.Replication/Replicate";
    case Method::kInstallSnapshot:
      return "/pawl.Replication/InstallSnapshot";
    case Method::kGoBack:
      return "/pawl.Replication/GoBack";
  }
  std::abort();
}

void SimulatedNetwork::Listen(const std::string& address, std::shared_ptr<Incarnation> incarnation,
                              Receiver receiver) {
  listeners_[address] = {std::move(incarnation), std::move(receiver)};
}

void SimulatedNetwork::SetBlocked(int from, int to, bool blocked) {
  if (blocked) {
    blocked_.insert({from, to});
  } else {
    blocked_.erase({from, to});
  }
}

MonotonicDuration SimulatedNetwork::Delay() {
  if (random_.Chance(faults_.slow)) return random_.Between(faults_.max_delay, faults_.slow_delay);
  return random_.Between(faults_.min_delay, faults_.max_delay);
}

SimulatedNetwork::CallId SimulatedNetwork::Call(const std::shared_ptr<Incarnation>& from,
                                                const std::string& address, const std::string& rpc,
                                                const ByteView& request, MonotonicDuration timeout,
                                                Done done) {
  const CallId call = next_++;
  Pending& pending = pending_[call];
  pending.from = from;
  pending.address = address;
  pending.done = std::move(done);
  timeout =
      std::clamp<MonotonicDuration>(timeout, MonotonicDuration::zero(), std::chrono::hours(24));
  EndLater(call, timeout, absl::DeadlineExceededError("no answer in time"));
  const auto copy = std::make_shared<const std::string>(Flat(request));
  const MonotonicTime deadline = loop_.now() + timeout;
  Send(call, rpc, copy, deadline, Delay(), /*is_duplicate=*/false);
  if (random_.Chance(faults_.duplicate))
    Send(call, rpc, copy, deadline, Delay() + Delay(), /*is_duplicate=*/true);
  if (late_control_ > 0 && rpc.starts_with("/pawl.Scheduler/") && random_.Chance(late_control_)) {
    Send(call, rpc, copy, deadline, random_.Between(MonotonicDuration::zero(), kLatest),
         /*is_duplicate=*/true);
  }
  return call;
}

void SimulatedNetwork::Send(CallId call, const std::string& rpc,
                            std::shared_ptr<const std::string> request, MonotonicTime deadline,
                            MonotonicDuration delay, bool is_duplicate) {
  const Pending& pending = pending_.at(call);
  const std::shared_ptr<Incarnation> from = pending.from;
  const bool lost = random_.Chance(faults_.lose_request);
  loop_.Schedule(delay, nullptr, "message",
                 [this, call, from, address = pending.address, rpc, request = std::move(request),
                  deadline, is_duplicate, lost] {
                   if (!lost)
                     return Arrive(call, from, address, rpc, request, deadline, is_duplicate);
                   if (!is_duplicate) LoseConnection(call);
                 });
}

void SimulatedNetwork::Arrive(CallId call, const std::shared_ptr<Incarnation>& from,
                              const std::string& address, const std::string& rpc,
                              const std::shared_ptr<const std::string>& request,
                              MonotonicTime deadline, bool is_duplicate) {
  const auto found = listeners_.find(address);
  if (found == listeners_.end()) {
    if (!is_duplicate)
      EndLater(call, Delay(),
               absl::UnavailableError(absl::StrCat("no process listens at ", address)));
    return;
  }
  const Listener& listener = found->second;
  if (IsBlocked(from->site, listener.incarnation->site)) {
    if (!is_duplicate) LoseConnection(call);
    return;
  }
  if (!listener.incarnation->alive) {
    if (!is_duplicate)
      EndLater(call, Delay(),
               absl::UnavailableError(absl::StrCat("connection refused by ", address)));
    return;
  }
  std::shared_ptr<const std::atomic<bool>> cancelled;
  if (const auto pending = pending_.find(call); pending != pending_.end() && !is_duplicate) {
    pending->second.at = listener.incarnation;
    cancelled = pending->second.cancelled;
  }
  loop_.Schedule(
      MonotonicDuration::zero(), listener.incarnation, rpc,
      [this, call, incarnation = listener.incarnation, &receiver = listener.receiver, rpc,
       request = request, deadline, is_duplicate, cancelled = std::move(cancelled)]() mutable {
        Reply reply = [this, call, incarnation, is_duplicate](absl::Status status,
                                                              OutgoingMessage answer) {
          if (!is_duplicate) Answer(call, incarnation, std::move(status), std::move(answer));
        };
        if (intercept_ != nullptr) {
          std::string changed = *request;
          if (intercept_(rpc, changed, is_duplicate, reply)) return;
          request = std::make_shared<const std::string>(std::move(changed));
        }
        receiver(rpc, Incoming(request),
                 std::max(deadline - loop_.now(), MonotonicDuration::zero()), std::move(cancelled),
                 std::move(reply));
      });
}

void SimulatedNetwork::Answer(CallId call, const std::shared_ptr<Incarnation>& at,
                              absl::Status status, OutgoingMessage answer) {
  const auto found = pending_.find(call);
  if (found == pending_.end() || !at->alive) return;
  std::string bytes = status.ok() ? Flat(answer.bytes) : std::string();
  const std::shared_ptr<Incarnation> from = found->second.from;
  const bool lost = random_.Chance(faults_.lose_reply);
  loop_.Schedule(
      Delay(), nullptr, "answer",
      [this, call, lost, at, from, status = std::move(status), bytes = std::move(bytes)]() mutable {
        if (lost || IsBlocked(at->site, from->site)) return LoseConnection(call);
        if (const auto pending = pending_.find(call); pending != pending_.end())
          pending->second.at = nullptr;
        EndLater(call, MonotonicDuration::zero(), std::move(status), std::move(bytes));
      });
}

void SimulatedNetwork::LoseConnection(CallId call) {
  const MonotonicDuration noticed =
      random_.Chance(0.5) ? kKeepalive : random_.Between(MonotonicDuration::zero(), kKeepalive);
  EndLater(call, noticed, absl::UnavailableError("connection lost"));
}

void SimulatedNetwork::EndLater(CallId call, MonotonicDuration delay, absl::Status status,
                                std::string answer) {
  const auto pending = pending_.find(call);
  if (pending == pending_.end()) return;
  loop_.Schedule(delay, pending->second.from, "end of a call",
                 [this, call, status = std::move(status), answer = std::move(answer)]() mutable {
                   End(call, std::move(status), std::move(answer));
                 });
}

void SimulatedNetwork::End(CallId call, absl::Status status, std::string answer) {
  Done done = Forget(call);
  if (done == nullptr) return;
  if (status.ok()) {
    done(std::move(status), Incoming(std::make_shared<const std::string>(std::move(answer))));
  } else {
    done(std::move(status), IncomingMessage());
  }
}

void SimulatedNetwork::Cancel(CallId call, const absl::Status& status) {
  EndLater(call, MonotonicDuration::zero(), status);
}

SimulatedNetwork::Done SimulatedNetwork::Forget(CallId call) {
  const auto found = pending_.find(call);
  if (found == pending_.end()) return nullptr;
  Done done = std::move(found->second.done);
  found->second.cancelled->store(true);
  pending_.erase(found);
  return done;
}

const std::string* SimulatedNetwork::AddressOf(CallId call) const {
  const auto found = pending_.find(call);
  return found == pending_.end() ? nullptr : &found->second.address;
}

void SimulatedNetwork::OnDeath(const std::shared_ptr<Incarnation>& incarnation) {
  for (const auto& [call, pending] : pending_) {
    if (pending.at != incarnation || !pending.from->alive) continue;
    if (IsBlocked(incarnation->site, pending.from->site)) continue;
    EndLater(call, Delay(), absl::UnavailableError("connection reset"));
  }
}

SimulatedCaller::~SimulatedCaller() {
  *exists_ = false;
  for (const SimulatedNetwork::CallId call : calls_) network_.Forget(call);
}

void SimulatedCaller::Call(const std::string& address, const std::string& rpc,
                           const ByteView& request, MonotonicDuration timeout,
                           Transport::Done done) {
  if (!incarnation_->alive)
    return done(absl::CancelledError("the process is ending"), IncomingMessage());
  if (shut_down_) {
    return After(MonotonicDuration::zero(), [done = std::move(done)]() mutable {
      done(absl::CancelledError("the transport is shut down"), IncomingMessage());
    });
  }
  auto id = std::make_shared<SimulatedNetwork::CallId>(0);
  *id = network_.Call(incarnation_, address, rpc, request, timeout,
                      [this, exists = exists_, id, done = std::move(done)](
                          absl::Status status, IncomingMessage answer) mutable {
                        if (*exists) calls_.erase(*id);
                        done(std::move(status), std::move(answer));
                      });
  calls_.insert(*id);
}

void SimulatedCaller::CancelCalls(const std::string& address) {
  for (const SimulatedNetwork::CallId call : calls_) {
    const std::string* const to = network_.AddressOf(call);
    if (to != nullptr && *to == address)
      network_.Cancel(call, absl::CancelledError("the call was cancelled"));
  }
}

void SimulatedCaller::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  const uint64_t id = next_timer_++;
  timers_->actions.emplace(id, std::move(action));
  if (shut_down_) delay = MonotonicDuration::zero();
  loop_.Schedule(delay, incarnation_, "timer", [timers = timers_, id] {
    const auto found = timers->actions.find(id);
    if (found == timers->actions.end()) return;
    absl::AnyInvocable<void()> due = std::move(found->second);
    timers->actions.erase(found);
    due();
  });
}

void SimulatedCaller::Shutdown() {
  shut_down_ = true;
  const absl::Status cancelled = absl::CancelledError("the transport is shut down");
  if (incarnation_->alive) {
    for (const SimulatedNetwork::CallId call : calls_) network_.Cancel(call, cancelled);
    return;
  }
  while (!calls_.empty()) {
    const SimulatedNetwork::CallId call = *calls_.begin();
    calls_.erase(calls_.begin());
    if (Transport::Done done = network_.Forget(call); done != nullptr)
      done(cancelled, IncomingMessage());
  }
  // Only the actions present now; actions that they add are useless.
  std::map<uint64_t, absl::AnyInvocable<void()>> actions = std::exchange(timers_->actions, {});
  for (auto& [id, action] : actions) action();
}

}  // namespace pawl
