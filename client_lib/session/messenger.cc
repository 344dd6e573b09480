#include "client_lib/session/messenger.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/random.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/transport.h"

namespace pawl {
namespace {

// Greater than any epoch.
constexpr uint64_t kEveryEpoch = UINT64_MAX;

absl::Status OutOfTime(const Call& call, const absl::Status& last_error) {
  return absl::DeadlineExceededError(
      absl::StrCat(call.terms.name, " was not done before its deadline; ",
                   last_error.ok() ? "no server has answered"
                                   : absl::StrCat("the last attempt: ", last_error.ToString()),
                   "; `pawlctl nodes` shows absent nodes; CallOptions::timeout or "
                   "ClientOptions::call_timeout allows more time"));
}

absl::Status NoPrimary(uint32_t partition, uint64_t epoch) {
  return absl::UnavailableError(absl::StrCat("partition ", partition,
                                             " has no primary in routing epoch ", epoch,
                                             "; its servers are absent"));
}

}  // namespace

void Messenger::Fail(const absl::Status& why) {
  std::vector<std::shared_ptr<FlowControl>> flows;
  {
    MutexLock lock(mu_);
    if (!failure_.ok()) return;
    failure_ = why;
    for (const auto& [address, pair] : flows_) {
      // Made on first use: a client may only pull.
      if (pair.push != nullptr) flows.push_back(pair.push);
      if (pair.pull != nullptr) flows.push_back(pair.pull);
    }
  }
  transport_.Shutdown();
  for (const std::shared_ptr<FlowControl>& flow : flows) flow->Open();
  WakeWaiting(kEveryEpoch);
}

absl::Status Messenger::failure() const {
  MutexLock lock(mu_);
  return failure_;
}

std::shared_ptr<FlowControl> Messenger::FlowTo(const std::string& address, Method method) {
  MutexLock lock(mu_);
  Flows& flows = flows_[address];
  const bool reads = method == Method::kPull || method == Method::kScan;
  std::shared_ptr<FlowControl>& flow = reads ? flows.pull : flows.push;
  if (flow == nullptr) {
    // Waiters belong to calls, whose number is bounded.
    flow = std::make_shared<FlowControl>(kMaxBytesInFlightPerServer, SIZE_MAX, deadlines_,
                                         kMaxMessagesPerServer);
    if (!failure_.ok()) flow->Open();
  }
  return flow;
}

void Messenger::Send(std::shared_ptr<Message> message) {
  const std::shared_ptr<const Routing> routing = router_->current();
  const auto primary = [&](const SegmentView& segment) {
    return routing->primary(segment.partition);
  };
  const size_t server = primary(message->segments[0]);
  if (std::all_of(message->segments.begin(), message->segments.end(),
                  [&](const SegmentView& segment) { return primary(segment) == server; })) {
    return SendTo(*routing, server, std::move(message));
  }
  absl::btree_map<size_t, std::shared_ptr<Message>> parts;  // by server
  for (size_t i = 0; i < message->segments.size(); ++i) {
    SegmentView& segment = message->segments[i];
    std::shared_ptr<Message>& part = parts[primary(segment)];
    if (part == nullptr) {
      part = std::make_shared<Message>();
      part->call = message->call;
      part->retries = message->retries;
      part->last_error = message->last_error;
    }
    part->bytes += segment.keys.size() + segment.values.size() + segment.slots.size();
    part->segments.push_back(std::move(segment));
    if (message->targets.empty()) continue;
    part->bytes += message->targets[i].value_bytes + message->targets[i].slot_bytes;
    part->targets.push_back(message->targets[i]);
  }
  message->call->AddMessages(static_cast<int>(parts.size()) - 1);
  for (auto& [to, part] : parts) SendTo(*routing, to, std::move(part));
}

void Messenger::SendTo(const Routing& routing, size_t server, std::shared_ptr<Message> message) {
  if (server == Routing::kNoServer) return WaitForPrimary(routing.epoch(), std::move(message));
  const std::string& address = routing.address(server);
  const uint64_t epoch = routing.epoch();
  const Call& call = *message->call;
  std::shared_ptr<FlowControl> flow = FlowTo(address, call.terms.method);
  const bool granted = flow->Acquire(
      call.terms.flow_step, message->bytes, call.terms.deadline,
      [self = shared_from_this(), address, epoch, flow, message](absl::Status status) {
        if (!status.ok()) {
          message->call->MessageDone(
              message->last_error.ok() ? status : OutOfTime(*message->call, message->last_error));
          return;
        }
        self->Transmit(address, epoch, flow, message);
      });
  if (granted) Transmit(address, epoch, std::move(flow), std::move(message));
}

void Messenger::WaitForPrimary(uint64_t epoch, std::shared_ptr<Message> message) {
  const Call& call = *message->call;
  absl::Status error = failure();
  if (error.ok() && clock_.Now() >= call.terms.deadline)
    error = OutOfTime(call, message->last_error);
  if (!error.ok()) return message->call->MessageDone(error);
  message->last_error = NoPrimary(message->segments[0].partition, epoch);
  WaitForRouting(call.terms.deadline, epoch,
                 [self = shared_from_this(), message = std::move(message)]() mutable {
                   self->Send(std::move(message));
                 });
}

void Messenger::Transmit(const std::string& address, uint64_t epoch,
                         std::shared_ptr<FlowControl> flow, std::shared_ptr<Message> message) {
  const Call& call = *message->call;
  const MonotonicDuration left = call.terms.deadline - clock_.Now();
  absl::Status error = failure();
  if (error.ok() && left <= MonotonicDuration::zero())
    error = OutOfTime(*message->call, message->last_error);
  if (!error.ok()) {
    flow->Release(call.terms.flow_step, message->bytes);
    message->call->MessageDone(error);
    return;
  }
  if (const auto routing = router_->current();
      routing->epoch() > epoch && !routing->Names(address)) {
    // The server has left since the message started to wait for its turn.
    flow->Release(call.terms.flow_step, message->bytes);
    Send(std::move(message));
    return;
  }

  RequestHeader header = call.header;
  header.set_epoch(epoch);
  OutgoingMessage request = call.Encode(*message, header);

  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  // A message with bytes may have to wait for everything in flight on its connection; a message
  // without bytes need not.
  const size_t bytes_before_answer =
      message->bytes == 0 ? 0 : std::max(flow->bytes_in_flight(), message->bytes);
  MonotonicDuration timeout = kBulkDeadline + TransferTime(bytes_before_answer);
  if (call.terms.may_wait) timeout += kPendingDeadline;
  const Method method = call.terms.method;
  // The answer may come, and drop the last other reference, before Call returns.
  const std::shared_ptr<Messenger> self = shared_from_this();
  transport_.Call(
      address, method, std::move(request), std::min(timeout, left),
      [self, epoch, sent = clock_.Now(), flow = std::move(flow), message = std::move(message)](
          absl::Status status, IncomingMessage answer) mutable {
        // First, so that the next message is sent while this answer is consumed.
        flow->Release(message->call->terms.flow_step, message->bytes);
        self->OnAnswer(epoch, sent, std::move(message), std::move(status), std::move(answer));
      });
  // A thread that has adopted newer routing may have forgotten the address before this call was
  // made; it must leave no connection to a server that has left.
  if (const auto routing = router_->current();
      routing->epoch() > epoch && !routing->Names(address)) {
    transport_.Forget(address);
  }
}

void Messenger::OnAnswer(uint64_t epoch, MonotonicTime sent, std::shared_ptr<Message> message,
                         absl::Status status, IncomingMessage answer) {
  const std::shared_ptr<Call> call = message->call;
  if (status.ok()) {
    budget_.OnSuccess();
    absl::Status taken = call->TakeAnswer(*message, answer);
    // To the caller, INVALID_ARGUMENT says that the call was wrong.
    if (absl::IsInvalidArgument(taken)) {
      taken = absl::InternalError(
          absl::StrCat("the answer to ", call->terms.name, " is malformed: ", taken.message()));
    }
    call->MessageDone(taken);
    return;
  }
  if (const absl::Status why = failure(); !why.ok()) {
    call->MessageDone(why);
    return;
  }
  if (call->terms.may_wait && absl::IsDeadlineExceeded(status) &&
      clock_.Now() - sent >= kPendingDeadline) {
    // It has waited on the server for other senders. Nothing is lost, so this is not a retry.
    message->last_error = absl::Status(status.code(), status.message());
    Send(std::move(message));
    return;
  }
  const RetryDecision decision = DecideRetry(status, message->retries, RandomNumber(), budget_);
  if (decision.action == RetryAction::kGiveUp) {
    call->MessageDone(status);
    return;
  }
  ++message->retries;
  message->last_error = absl::Status(status.code(), status.message());
  counters_.retries.fetch_add(1, std::memory_order_relaxed);
  if (decision.action == RetryAction::kReroute && AdoptRouting(status, epoch)) {
    Send(std::move(message));
    return;
  }
  const MonotonicTime next = std::min(clock_.Now() + decision.delay, call->terms.deadline);
  WaitForRouting(next, epoch, [self = shared_from_this(), message = std::move(message)]() mutable {
    self->Send(std::move(message));
  });
}

absl::Status Messenger::Adopt(const RoutingTable& table) {
  const std::shared_ptr<const Routing> before = router_->current();
  PAWL_ASSIGN_OR_RETURN(const bool is_newer, router_->Adopt(table));
  if (!is_newer) return absl::OkStatus();
  if (before != nullptr) {
    counters_.routing_changes.fetch_add(1, std::memory_order_relaxed);
    // Checks the current table for each action: another thread may adopt a newer one, which names
    // the address again.
    for (const std::string& address : before->primary_addresses()) {
      const std::shared_ptr<const Routing> now = router_->current();
      const std::vector<std::string>& still = now->primary_addresses();
      if (std::find(still.begin(), still.end(), address) == still.end())
        transport_.CancelCalls(address);
    }
    ForgetServers(*before, *router_->current());
  }
  WakeWaiting(router_->current()->epoch());
  return absl::OkStatus();
}

void Messenger::ForgetServers(const Routing& before, const Routing& now) {
  absl::btree_set<std::string> gone;
  for (const std::string& address : before.addresses()) {
    if (!now.Names(address)) gone.insert(address);
  }
  {
    MutexLock lock(mu_);
    for (auto it = flows_.begin(); it != flows_.end();) {
      // Its waiters proceed as the calls in flight end.
      if (now.Names(it->first)) {
        ++it;
        continue;
      }
      gone.insert(it->first);
      it = flows_.erase(it);
    }
  }
  for (const std::string& address : gone) {
    if (!router_->current()->Names(address)) transport_.Forget(address);
  }
}

bool Messenger::AdoptRouting(const absl::Status& error, uint64_t epoch) {
  // A refused table changes nothing; the message is sent again by the current one. A table without
  // partitions means that the newer one is too large for an error; the scheduler sends it without a
  // request.
  if (const std::optional<RoutingTable> table = AttachedRouting(error)) Adopt(*table).IgnoreError();
  return router_->current()->epoch() > epoch;
}

void Messenger::WaitForRouting(MonotonicTime until, uint64_t epoch,
                               absl::AnyInvocable<void()> again) {
  uint64_t id;
  {
    MutexLock lock(mu_);
    id = next_waiting_++;
    // Under the lock, so that the thread that takes the waiter finds the timer.
    const DeadlineQueue::Id timer = deadlines_->Add(until, [self = shared_from_this(), id] {
      absl::AnyInvocable<void()> expired;
      {
        MutexLock lock(self->mu_);
        const auto it = self->waiting_.find(id);
        if (it == self->waiting_.end()) return;
        expired = std::move(it->second.again);
        self->waiting_.erase(it);
      }
      expired();
    });
    waiting_.emplace(id, Waiting{timer, epoch, std::move(again)});
  }
  // The event may have come before this waiter was added.
  if (const uint64_t newest = router_->current()->epoch(); newest > epoch) WakeWaiting(newest);
  if (!failure().ok()) WakeWaiting(kEveryEpoch);
}

void Messenger::WakeWaiting(uint64_t epoch) {
  std::vector<Waiting> awake;
  {
    MutexLock lock(mu_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->second.epoch >= epoch) {
        ++it;
        continue;
      }
      awake.push_back(std::move(it->second));
      it = waiting_.erase(it);
    }
  }
  for (Waiting& waiting : awake) {
    deadlines_->Remove(waiting.timer);
    waiting.again();
  }
}

}  // namespace pawl
