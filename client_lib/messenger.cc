#include "client_lib/messenger.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

uint64_t RandomNumber() {
  static thread_local std::mt19937_64 generator{std::random_device()()};
  return generator();
}

MonotonicDuration TransferTime(size_t bytes) {
  return kBulkDeadline + std::chrono::milliseconds(bytes * 1000 / kMinBytesPerSecond);
}

absl::Status OutOfTime(const absl::Status& last_error) {
  if (last_error.ok()) return absl::DeadlineExceededError("the call was not done before its deadline");
  return absl::DeadlineExceededError(
      absl::StrCat("the call was not done before its deadline; the last attempt: ", last_error.ToString()));
}

}  // namespace

void Call::MessageDone(const absl::Status& status) {
  if (!status.ok()) {
    MutexLock lock(mu_);
    if (error_.ok()) error_ = status;
  }
  if (messages_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  absl::Status error;
  {
    MutexLock lock(mu_);
    error = error_;
  }
  Finish(error);
}

void Messenger::Fail(const absl::Status& why) {
  std::vector<std::shared_ptr<FlowControl>> flows;
  {
    MutexLock lock(mu_);
    if (!failure_.ok()) return;
    failure_ = why;
    for (const auto& [address, pair] : flows_) {
      // Made when first used: a client may only pull.
      if (pair.push != nullptr) flows.push_back(pair.push);
      if (pair.pull != nullptr) flows.push_back(pair.pull);
    }
  }
  transport_.Shutdown();
  for (const std::shared_ptr<FlowControl>& flow : flows) flow->Open();
}

absl::Status Messenger::failure() const {
  MutexLock lock(mu_);
  return failure_;
}

std::shared_ptr<FlowControl> Messenger::FlowTo(const std::string& address, Method method) {
  MutexLock lock(mu_);
  Flows& flows = flows_[address];
  std::shared_ptr<FlowControl>& flow = method == Method::kPull ? flows.pull : flows.push;
  if (flow == nullptr) {
    // What waits here belongs to calls, whose number is bounded.
    flow = std::make_shared<FlowControl>(kMaxBytesInFlightPerServer, SIZE_MAX, deadlines_);
    if (!failure_.ok()) flow->Open();
  }
  return flow;
}

void Messenger::Send(std::shared_ptr<Message> message) {
  const std::shared_ptr<const Routing> routing = router_.current();
  const size_t server = routing->primary(message->segments[0].partition);
  const bool one_server = std::all_of(message->segments.begin(), message->segments.end(), [&](const Segment& segment) {
    return routing->primary(segment.partition) == server;
  });
  if (one_server) {
    SendTo(routing->address(server), routing->epoch(), std::move(message));
    return;
  }
  std::vector<std::shared_ptr<Message>> parts(routing->servers());
  int count = 0;
  for (Segment& segment : message->segments) {
    std::shared_ptr<Message>& part = parts[routing->primary(segment.partition)];
    if (part == nullptr) {
      ++count;
      part = std::make_shared<Message>();
      part->call = message->call;
      part->retries = message->retries;
      part->last_error = message->last_error;
    }
    part->bytes += segment.bytes;
    part->segments.push_back(std::move(segment));
  }
  message->call->AddMessages(count - 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != nullptr) SendTo(routing->address(i), routing->epoch(), std::move(parts[i]));
  }
}

void Messenger::SendTo(const std::string& address, uint64_t epoch, std::shared_ptr<Message> message) {
  const Call& call = *message->call;
  std::shared_ptr<FlowControl> flow = FlowTo(address, call.method);
  const bool granted = flow->Acquire(
      call.flow_step, message->bytes, call.deadline,
      [self = shared_from_this(), address, epoch, flow, message](absl::Status status) {
        if (!status.ok()) {
          message->call->MessageDone(message->last_error.ok() ? status : OutOfTime(message->last_error));
          return;
        }
        self->Transmit(address, epoch, flow, message);
      });
  if (granted) Transmit(address, epoch, std::move(flow), std::move(message));
}

void Messenger::Transmit(const std::string& address, uint64_t epoch, std::shared_ptr<FlowControl> flow,
                         std::shared_ptr<Message> message) {
  const Call& call = *message->call;
  const MonotonicDuration left = call.deadline - clock_.Now();
  absl::Status error = failure();
  if (error.ok() && left <= MonotonicDuration::zero()) error = OutOfTime(message->last_error);
  if (!error.ok()) {
    flow->Release(call.flow_step, message->bytes);
    message->call->MessageDone(error);
    return;
  }

  RequestHeader header = call.header;
  header.set_epoch(epoch);
  OutgoingMessage request;
  if (call.method == Method::kPush) {
    std::vector<PushSegmentView> views;
    views.reserve(message->segments.size());
    for (const Segment& segment : message->segments) {
      views.push_back({segment.table, segment.partition, segment.ordinal, FLOAT32, segment.keys, segment.values});
    }
    request = EncodePushRequest(header, views);
  } else {
    std::vector<PullSegmentView> views;
    views.reserve(message->segments.size());
    for (const Segment& segment : message->segments) {
      views.push_back({segment.table, segment.partition, segment.keys});
    }
    request = EncodePullRequest(header, views);
  }

  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  // All that is under way shares the connection.
  MonotonicDuration timeout = TransferTime(std::max(flow->bytes_in_flight(), message->bytes));
  if (call.may_park) timeout += kParkedDeadline;
  const Method method = call.method;
  transport_.Call(address, method, std::move(request), std::min(timeout, left),
                  [self = shared_from_this(), epoch, flow = std::move(flow), message = std::move(message)](
                      absl::Status status, IncomingMessage answer) mutable {
                    // First, so that the next message is on its way while this answer is taken.
                    flow->Release(message->call->flow_step, message->bytes);
                    self->OnAnswer(epoch, std::move(message), std::move(status), std::move(answer));
                  });
}

void Messenger::OnAnswer(uint64_t epoch, std::shared_ptr<Message> message, absl::Status status,
                         IncomingMessage answer) {
  const std::shared_ptr<Call> call = message->call;
  if (status.ok()) {
    budget_.OnSuccess();
    call->MessageDone(TakeAnswer(*message, answer));
    return;
  }
  if (const absl::Status why = failure(); !why.ok()) {
    call->MessageDone(why);
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
  const absl::Status too_late =
      WaitForRetry(decision.delay, call->deadline, status,
                   [self = shared_from_this(), message = std::move(message)] { self->Send(message); });
  if (!too_late.ok()) call->MessageDone(too_late);
}

absl::Status Messenger::TakeAnswer(const Message& message, const IncomingMessage& answer) {
  if (message.call->method == Method::kPush) {
    PushResponse response;
    PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
    counters_.segments_accepted.fetch_add(response.accepted(), std::memory_order_relaxed);
    counters_.segments_deduplicated.fetch_add(response.deduplicated(), std::memory_order_relaxed);
    counters_.segments_late.fetch_add(response.late(), std::memory_order_relaxed);
    return absl::OkStatus();
  }
  PAWL_ASSIGN_OR_RETURN(const PullResponseView view, DecodePullResponse(answer.bytes));
  if (view.results.size() != message.segments.size()) {
    return absl::InternalError(absl::StrCat("the server answered ", view.results.size(), " segments of the ",
                                            message.segments.size(), " that were asked for"));
  }
  return message.call->TakeAnswer(message.segments, view);
}

bool Messenger::AdoptRouting(const absl::Status& error, uint64_t epoch) {
  RoutingTable table;
  if (const absl::optional<absl::Cord> payload = error.GetPayload(kRoutingPayloadUrl);
      payload && table.ParseFromString(std::string(*payload))) {
    // A table that is refused changes nothing; the message goes again by the current one.
    const absl::StatusOr<bool> adopted = router_.Adopt(table);
    if (adopted.ok() && *adopted) counters_.routing_changes.fetch_add(1, std::memory_order_relaxed);
  }
  return router_.current()->epoch() > epoch;
}

absl::Status Messenger::WaitForRetry(MonotonicDuration delay, MonotonicTime deadline, const absl::Status& error,
                                     absl::AnyInvocable<void()> again) {
  if (clock_.Now() + delay >= deadline) return OutOfTime(error);
  transport_.After(delay, std::move(again));
  return absl::OkStatus();
}

// One EndStep, to all servers of a routing table; again to all of the next one if that changes meanwhile.
struct Messenger::StepEnd {
  RequestHeader header;
  MonotonicTime deadline;
  absl::AnyInvocable<void(absl::Status)> done;
  std::atomic<size_t> servers_left{0};
  std::atomic<bool> repeat{false};
  Mutex mu;
  absl::Status error PAWL_GUARDED_BY(mu);
};

void Messenger::EndStep(const RequestHeader& header, MonotonicTime deadline,
                        absl::AnyInvocable<void(absl::Status)> done) {
  auto end = std::make_shared<StepEnd>();
  end->header = header;
  end->deadline = deadline;
  end->done = std::move(done);
  BeginStepEnd(std::move(end));
}

void Messenger::BeginStepEnd(std::shared_ptr<StepEnd> end) {
  const std::shared_ptr<const Routing> routing = router_.current();
  end->repeat = false;
  end->servers_left = routing->primary_addresses().size();
  for (const std::string& address : routing->primary_addresses()) SendStepEnd(end, address, routing->epoch(), 0);
}

void Messenger::SendStepEnd(std::shared_ptr<StepEnd> end, const std::string& address, uint64_t epoch, int retries) {
  if (const absl::Status why = failure(); !why.ok()) {
    StepEndServerDone(end, epoch, false, why);
    return;
  }
  const MonotonicDuration left = end->deadline - clock_.Now();
  if (left <= MonotonicDuration::zero()) {
    StepEndServerDone(end, epoch, false, OutOfTime(absl::OkStatus()));
    return;
  }
  EndStepRequest request;
  *request.mutable_header() = end->header;
  request.mutable_header()->set_epoch(epoch);
  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  transport_.Call(address, Method::kEndStep, EncodeSmall(request),
                  std::min<MonotonicDuration>(kBulkDeadline, left),
                  [self = shared_from_this(), end, address, epoch, retries](absl::Status status, IncomingMessage) {
                    self->OnStepEndAnswer(end, address, epoch, retries, std::move(status));
                  });
}

void Messenger::OnStepEndAnswer(std::shared_ptr<StepEnd> end, const std::string& address, uint64_t epoch, int retries,
                                absl::Status status) {
  if (status.ok()) {
    budget_.OnSuccess();
    StepEndServerDone(end, epoch, false, status);
    return;
  }
  if (const absl::Status why = failure(); !why.ok()) {
    StepEndServerDone(end, epoch, false, why);
    return;
  }
  const RetryDecision decision = DecideRetry(status, retries, RandomNumber(), budget_);
  if (decision.action == RetryAction::kGiveUp) {
    StepEndServerDone(end, epoch, false, status);
    return;
  }
  counters_.retries.fetch_add(1, std::memory_order_relaxed);
  if (decision.action == RetryAction::kReroute) AdoptRouting(status, epoch);
  if (router_.current()->epoch() > epoch) {
    StepEndServerDone(end, epoch, true, absl::OkStatus());
    return;
  }
  const absl::Status too_late =
      WaitForRetry(decision.delay, end->deadline, status, [self = shared_from_this(), end, address, epoch, retries] {
        if (self->router_.current()->epoch() > epoch) {
          self->StepEndServerDone(end, epoch, true, absl::OkStatus());
        } else {
          self->SendStepEnd(end, address, epoch, retries + 1);
        }
      });
  if (!too_late.ok()) StepEndServerDone(end, epoch, false, too_late);
}

void Messenger::StepEndServerDone(std::shared_ptr<StepEnd> end, uint64_t epoch, bool repeat,
                                  const absl::Status& status) {
  if (repeat) end->repeat = true;
  if (!status.ok()) {
    MutexLock lock(end->mu);
    if (end->error.ok()) end->error = status;
  }
  if (end->servers_left.fetch_sub(1) != 1) return;
  absl::Status error;
  {
    MutexLock lock(end->mu);
    error = end->error;
  }
  // A partition that has moved may have been at neither server when it was told: all are told
  // again until the routing stands still.
  if (error.ok() && (end->repeat || router_.current()->epoch() > epoch)) {
    BeginStepEnd(end);
    return;
  }
  end->done(error);
}

}  // namespace pawl
