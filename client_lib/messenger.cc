#include "client_lib/messenger.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/random_number.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

MonotonicDuration TransferTime(size_t bytes) {
  return kBulkDeadline + std::chrono::milliseconds(bytes * 1000 / kMinBytesPerSecond);
}

absl::string_view NameOf(Method method) {
  switch (method) {
    case Method::kPush:
      return "the push";
    case Method::kPull:
      return "the pull";
    case Method::kEndStep:
      return "the step's end";
    case Method::kTakeOver:
      return "taking the logical worker over";
    case Method::kReplicate:
    case Method::kInstallSnapshot:
      break;
  }
  // Clients do not replicate.
  return "the call";
}

absl::Status OutOfTime(Method method, const absl::Status& last_error) {
  return absl::DeadlineExceededError(
      absl::StrCat(NameOf(method), " was not done before its deadline; ",
                   last_error.ok() ? "no server has answered" : absl::StrCat("the last attempt: ", last_error.ToString()),
                   "; `pawlctl nodes` shows who is away, and ClientOptions::call_timeout may be longer"));
}

absl::Status NoPrimary(uint32_t partition, uint64_t epoch) {
  return absl::UnavailableError(
      absl::StrCat("partition ", partition, " has no primary in routing epoch ", epoch, "; its servers are away"));
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
  WakeWaiting();
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
    flow = std::make_shared<FlowControl>(kMaxBytesInFlightPerServer, SIZE_MAX, deadlines_, kMaxMessagesPerServer);
    if (!failure_.ok()) flow->Open();
  }
  return flow;
}

void Messenger::Send(std::shared_ptr<Message> message) {
  const std::shared_ptr<const Routing> routing = router_.current();
  const size_t server = routing->primary(message->segments[0].partition);
  const bool one_server = std::all_of(message->segments.begin(), message->segments.end(),
                                      [&](const Segment& segment) { return routing->primary(segment.partition) == server; });
  if (one_server && server != Routing::kNoServer) {
    SendTo(routing->address(server), routing->epoch(), std::move(message));
    return;
  }
  if (one_server) {
    const MonotonicTime deadline = message->call->deadline;
    absl::Status error = failure();
    if (error.ok() && clock_.Now() >= deadline) error = OutOfTime(message->call->method, message->last_error);
    if (!error.ok()) {
      message->call->MessageDone(error);
      return;
    }
    message->last_error = NoPrimary(message->segments[0].partition, routing->epoch());
    WaitForRouting(deadline, routing->epoch(),
                   [self = shared_from_this(), message = std::move(message)]() mutable { self->Send(std::move(message)); });
    return;
  }
  std::vector<std::shared_ptr<Message>> parts(routing->servers());
  std::shared_ptr<Message> nowhere;
  int count = 0;
  for (Segment& segment : message->segments) {
    const size_t to = routing->primary(segment.partition);
    std::shared_ptr<Message>& part = to == Routing::kNoServer ? nowhere : parts[to];
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
  if (nowhere != nullptr) Send(std::move(nowhere));
}

void Messenger::SendTo(const std::string& address, uint64_t epoch, std::shared_ptr<Message> message) {
  const Call& call = *message->call;
  std::shared_ptr<FlowControl> flow = FlowTo(address, call.method);
  const bool granted =
      flow->Acquire(call.flow_step, message->bytes, call.deadline,
                    [self = shared_from_this(), address, epoch, flow, message](absl::Status status) {
                      if (!status.ok()) {
                        message->call->MessageDone(
                            message->last_error.ok() ? status : OutOfTime(message->call->method, message->last_error));
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
  if (error.ok() && left <= MonotonicDuration::zero()) error = OutOfTime(message->call->method, message->last_error);
  if (!error.ok()) {
    flow->Release(call.flow_step, message->bytes);
    message->call->MessageDone(error);
    return;
  }
  if (const auto routing = router_.current(); routing->epoch() > epoch && !routing->Names(address)) {
    // The server is gone since the message began to wait for its turn.
    flow->Release(call.flow_step, message->bytes);
    Send(std::move(message));
    return;
  }

  RequestHeader header = call.header;
  header.set_epoch(epoch);
  OutgoingMessage request;
  if (call.method == Method::kPush) {
    std::vector<PushSegmentView> views;
    views.reserve(message->segments.size());
    for (const Segment& segment : message->segments) {
      views.push_back({segment.table, segment.partition, segment.ordinal, segment.element_type, segment.keys, segment.values,
                       segment.exponent});
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
  CallServer(address, epoch, method, std::move(request), std::min(timeout, left),
             [self = shared_from_this(), epoch, sent = clock_.Now(), flow = std::move(flow), message = std::move(message)](
                 absl::Status status, IncomingMessage answer) mutable {
               // First, so that the next message is on its way while this answer is taken.
               flow->Release(message->call->flow_step, message->bytes);
               self->OnAnswer(epoch, sent, std::move(message), std::move(status), std::move(answer));
             });
}

void Messenger::CallServer(std::string address, uint64_t epoch, Method method, OutgoingMessage request,
                           MonotonicDuration timeout, Transport::Done done) {
  // `done` may have the last reference, and be run here.
  const std::shared_ptr<Messenger> self = shared_from_this();
  transport_.Call(address, method, std::move(request), timeout, std::move(done));
  // Whoever has adopted a newer routing meanwhile may have forgotten the address before this call was there.
  if (const auto routing = router_.current(); routing->epoch() > epoch && !routing->Names(address)) {
    transport_.Forget(address);
  }
}

void Messenger::OnAnswer(uint64_t epoch, MonotonicTime sent, std::shared_ptr<Message> message, absl::Status status,
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
  if (call->may_park && absl::IsDeadlineExceeded(status) && clock_.Now() - sent >= kParkedDeadline) {
    // It has waited on the server for others. Nothing is lost, and nothing to be learned from it.
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
  const MonotonicTime next = clock_.Now() + decision.delay;
  if (next >= call->deadline) {
    call->MessageDone(OutOfTime(call->method, status));
    return;
  }
  WaitForRouting(next, epoch,
                 [self = shared_from_this(), message = std::move(message)]() mutable { self->Send(std::move(message)); });
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

absl::Status Messenger::Adopt(const RoutingTable& table) {
  const std::shared_ptr<const Routing> before = router_.current();
  PAWL_ASSIGN_OR_RETURN(const bool is_newer, router_.Adopt(table));
  if (!is_newer) return absl::OkStatus();
  if (before != nullptr) {
    counters_.routing_changes.fetch_add(1, std::memory_order_relaxed);
    // By what is current at each deed: another thread may adopt a newer one meanwhile, which names it again.
    for (const std::string& address : before->primary_addresses()) {
      const std::shared_ptr<const Routing> now = router_.current();
      const std::vector<std::string>& still = now->primary_addresses();
      if (std::find(still.begin(), still.end(), address) == still.end()) transport_.CancelCalls(address);
    }
    ForgetServers(*before, *router_.current());
  }
  WakeWaiting();
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
      // What waits in it goes on as what is under way ends.
      if (now.Names(it->first)) {
        ++it;
        continue;
      }
      gone.insert(it->first);
      it = flows_.erase(it);
    }
  }
  for (const std::string& address : gone) {
    if (!router_.current()->Names(address)) transport_.Forget(address);
  }
}

bool Messenger::AdoptRouting(const absl::Status& error, uint64_t epoch) {
  RoutingTable table;
  // A table that is refused changes nothing; the message goes again by the current one. One without partitions says
  // that there is a newer one, too large for an error: it comes from the scheduler by itself.
  if (const absl::optional<absl::Cord> payload = error.GetPayload(kRoutingPayloadUrl);
      payload && table.ParseFromString(std::string(*payload))) {
    Adopt(table).IgnoreError();
  }
  return router_.current()->epoch() > epoch;
}

void Messenger::WaitForRouting(MonotonicTime until, uint64_t epoch, absl::AnyInvocable<void()> again) {
  uint64_t id;
  {
    MutexLock lock(mu_);
    id = next_waiting_++;
    // Under the lock, so that whoever takes what waits finds the timer there.
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
    waiting_.emplace(id, Waiting{timer, std::move(again)});
  }
  // What came before it waited has woken others.
  if (router_.current()->epoch() > epoch || !failure().ok()) WakeWaiting();
}

void Messenger::WakeWaiting() {
  absl::btree_map<uint64_t, Waiting> awake;
  {
    MutexLock lock(mu_);
    awake.swap(waiting_);
  }
  for (auto& [id, waiting] : awake) {
    deadlines_->Remove(waiting.timer);
    waiting.again();
  }
}

// An EndStep or TakeOver, in as many messages as it takes.
struct Messenger::Round {
  Method method;
  // Without its epoch.
  RequestHeader header;
  MonotonicTime deadline;
  // EndStep, by partition; empty: not known.
  std::vector<uint64_t> segments;
  // TakeOver, by partition; written by the answer to its part.
  std::vector<uint64_t> clocks;
  absl::AnyInvocable<void(absl::Status)> done;
  std::atomic<size_t> parts_left{1};
  Mutex mu;
  absl::Status error PAWL_GUARDED_BY(mu);

  OutgoingMessage Encode(const std::vector<uint32_t>& partitions, uint64_t epoch) const {
    if (method == Method::kTakeOver) {
      TakeOverRequest request;
      *request.mutable_header() = header;
      request.mutable_header()->set_epoch(epoch);
      request.mutable_partitions()->Assign(partitions.begin(), partitions.end());
      return EncodeSmall(request);
    }
    EndStepRequest request;
    *request.mutable_header() = header;
    request.mutable_header()->set_epoch(epoch);
    request.mutable_partitions()->Assign(partitions.begin(), partitions.end());
    if (!segments.empty()) {
      for (const uint32_t p : partitions) request.add_segments(segments[p]);
    }
    return EncodeSmall(request);
  }

  absl::Status TakeAnswer(const std::vector<uint32_t>& partitions, const IncomingMessage& answer) {
    if (method != Method::kTakeOver) return absl::OkStatus();
    TakeOverResponse response;
    PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
    if (response.clocks_size() != static_cast<int>(partitions.size())) {
      return absl::InternalError(
          absl::StrCat("the server answered ", response.clocks_size(), " clocks for ", partitions.size(), " partitions"));
    }
    for (size_t i = 0; i < partitions.size(); ++i) clocks[partitions[i]] = response.clocks(static_cast<int>(i));
    return absl::OkStatus();
  }

  void PartDone(const absl::Status& status) {
    if (!status.ok()) {
      MutexLock lock(mu);
      if (error.ok()) error = status;
    }
    if (parts_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    absl::Status result;
    {
      MutexLock lock(mu);
      result = error;
    }
    done(std::move(result));
    done = nullptr;
  }
};

void Messenger::EndStep(const RequestHeader& header, std::vector<uint32_t> partitions, std::vector<uint64_t> segments,
                        MonotonicTime deadline, absl::AnyInvocable<void(absl::Status)> done) {
  auto part = std::make_shared<RoundPart>();
  part->round = std::make_shared<Round>();
  part->round->method = Method::kEndStep;
  part->round->header = header;
  part->round->deadline = deadline;
  part->round->done = std::move(done);
  if (!segments.empty()) {
    part->round->segments.resize(router_.current()->partitions());
    for (size_t i = 0; i < partitions.size(); ++i) part->round->segments[partitions[i]] = segments[i];
  }
  part->partitions = std::move(partitions);
  SendPart(std::move(part));
}

void Messenger::TakeOver(const RequestHeader& header, MonotonicTime deadline,
                         absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done) {
  auto part = std::make_shared<RoundPart>();
  part->partitions.resize(router_.current()->partitions());
  std::iota(part->partitions.begin(), part->partitions.end(), 0);
  part->round = std::make_shared<Round>();
  Round* const round = part->round.get();
  round->method = Method::kTakeOver;
  round->header = header;
  round->deadline = deadline;
  round->clocks.resize(part->partitions.size());
  round->done = [round, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) {
      done(std::move(round->clocks));
    } else {
      done(std::move(status));
    }
  };
  SendPart(std::move(part));
}

void Messenger::SendPart(std::shared_ptr<RoundPart> part) {
  Round& round = *part->round;
  absl::Status error = failure();
  if (error.ok() && clock_.Now() >= round.deadline) error = OutOfTime(round.method, part->last_error);
  if (!error.ok() || part->partitions.empty()) {
    round.PartDone(error);
    return;
  }
  const std::shared_ptr<const Routing> routing = router_.current();
  std::vector<std::shared_ptr<RoundPart>> parts(routing->servers() + 1);
  size_t count = 0;
  for (const uint32_t p : part->partitions) {
    std::shared_ptr<RoundPart>& to = parts[std::min(routing->primary(p), routing->servers())];
    if (to == nullptr) {
      ++count;
      to = std::make_shared<RoundPart>();
      to->round = part->round;
      to->retries = part->retries;
      to->last_error = part->last_error;
    }
    to->partitions.push_back(p);
  }
  round.parts_left.fetch_add(count - 1, std::memory_order_relaxed);
  for (size_t i = 0; i < routing->servers(); ++i) {
    if (parts[i] != nullptr) TransmitPart(routing->address(i), routing->epoch(), std::move(parts[i]));
  }
  if (std::shared_ptr<RoundPart> nowhere = std::move(parts.back()); nowhere != nullptr) {
    nowhere->last_error = NoPrimary(nowhere->partitions[0], routing->epoch());
    WaitForRouting(round.deadline, routing->epoch(),
                   [self = shared_from_this(), nowhere]() mutable { self->SendPart(std::move(nowhere)); });
  }
}

void Messenger::TransmitPart(const std::string& address, uint64_t epoch, std::shared_ptr<RoundPart> part) {
  const Round& round = *part->round;
  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  // An answer that comes too late for this is that to the next attempt.
  const MonotonicDuration timeout = std::min<MonotonicDuration>(kBulkDeadline, round.deadline - clock_.Now());
  OutgoingMessage request = round.Encode(part->partitions, epoch);
  const Method method = round.method;
  CallServer(
      address, epoch, method, std::move(request), timeout,
      [self = shared_from_this(), epoch, part = std::move(part)](absl::Status status, IncomingMessage answer) mutable {
        self->OnPartAnswer(epoch, std::move(part), std::move(status), std::move(answer));
      });
}

void Messenger::OnPartAnswer(uint64_t epoch, std::shared_ptr<RoundPart> part, absl::Status status, IncomingMessage answer) {
  const std::shared_ptr<Round> round = part->round;
  if (status.ok()) {
    budget_.OnSuccess();
    round->PartDone(round->TakeAnswer(part->partitions, answer));
    return;
  }
  if (const absl::Status why = failure(); !why.ok()) {
    round->PartDone(why);
    return;
  }
  const RetryDecision decision = DecideRetry(status, part->retries, RandomNumber(), budget_);
  if (decision.action == RetryAction::kGiveUp) {
    round->PartDone(status);
    return;
  }
  ++part->retries;
  part->last_error = absl::Status(status.code(), status.message());
  counters_.retries.fetch_add(1, std::memory_order_relaxed);
  if (decision.action == RetryAction::kReroute && AdoptRouting(status, epoch)) {
    SendPart(std::move(part));
    return;
  }
  const MonotonicTime next = clock_.Now() + decision.delay;
  if (next >= round->deadline) {
    round->PartDone(OutOfTime(round->method, status));
    return;
  }
  WaitForRouting(next, epoch,
                 [self = shared_from_this(), part = std::move(part)]() mutable { self->SendPart(std::move(part)); });
}

}  // namespace pawl
