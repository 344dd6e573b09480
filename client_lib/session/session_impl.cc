#include "client_lib/session/session_impl.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/rpc/version.h"
#include "client_lib/session/check_items.h"
#include "client_lib/session/messenger.h"
#include "client_lib/session/sender_calls.h"

namespace pawl {
namespace {

static_assert(kMaxSegmentsAhead <= kPushWindow, "servers refuse pushes that are further ahead");

absl::Status TooManyWaiting() {
  return absl::ResourceExhaustedError(
      absl::StrCat(kMaxWaitingCalls,
                   " calls of this session are waiting, which is the limit; wait for some "
                   "of them first"));
}

absl::Status NoTurn() {
  return absl::DeadlineExceededError("the call did not start in its session before its deadline");
}

}  // namespace

SessionImpl::SessionImpl(std::shared_ptr<ClientCore> core, const Identity& identity)
    : core_(std::move(core)),
      identity_(identity),
      next_ordinal_(core_->router().current()->partitions()),
      ordinals_of_step_(identity.first_step),
      step_(identity.first_step),
      active_step_(identity.first_step) {}

RequestHeader SessionImpl::Header(uint64_t step) const {
  RequestHeader header;
  header.set_job_id(core_->registration().job_id());
  header.set_incarnation(identity_.incarnation != 0 ? identity_.incarnation
                                                    : core_->registration().incarnation());
  if (identity_.rank) {
    header.set_logical_worker(*identity_.rank);
    header.set_ticket(identity_.ticket);
    header.set_step(step);
  } else if (identity_.client) {
    header.set_client(*identity_.client);
    header.set_ticket(core_->registration().ticket());
  }
  return header;
}

absl::Status SessionImpl::CheckEffectsAreKnown() const {
  if (core_->registration().protocol() >= kEffectsProtocol) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the job speaks protocol ", core_->registration().protocol(),
                   "; assignments, learning rates and slots need protocol ", kEffectsProtocol));
}

uint64_t SessionImpl::step() const {
  MutexLock lock(mu_);
  return step_;
}

void SessionImpl::Push(absl::Span<const PushItem> items, const CallOptions& options,
                       Callback done) {
  EnqueuePush(items, options, std::move(done));
}

void SessionImpl::Assign(absl::Span<const AssignItem> items, const CallOptions& options,
                         Callback done) {
  EnqueuePush(items, options, std::move(done));
}

void SessionImpl::SetLearningRates(absl::Span<const LearningRateItem> items,
                                   const CallOptions& options, Callback done) {
  EnqueuePush(items, options, std::move(done));
}

template <typename Item>
void SessionImpl::EnqueuePush(absl::Span<const Item> items, const CallOptions& options,
                              Callback done) {
  absl::Status refused = CheckItems(items);
  if (!std::is_same_v<Item, PushItem> && refused.ok()) refused = CheckEffectsAreKnown();
  if (std::is_same_v<Item, LearningRateItem> && refused.ok() && identity_.rank != 0u)
    refused = absl::FailedPreconditionError("only rank 0 sets learning rates");
  if (refused.ok() && !identity_.rank && !identity_.client) {
    refused = absl::FailedPreconditionError(
        "a WORKER_ROLE client cannot push free-running; push through OpenLogicalWorker, or "
        "connect with CLIENT_ROLE");
  }
  Enqueue(std::move(refused), std::move(done),
          [&](Operation& operation, Callback& counted) PAWL_REQUIRES(mu_) {
            operation.push = std::make_shared<PushCall>(
                shared_from_this(), items, step_, core_->Deadline(options), std::move(counted));
          });
}

void SessionImpl::EndStep(const CallOptions& options, Callback done) {
  absl::Status refused;
  if (!identity_.rank)
    refused =
        absl::FailedPreconditionError("a free-running client has no steps; use OpenLogicalWorker");
  Enqueue(std::move(refused), std::move(done),
          [&](Operation& operation, Callback& counted) PAWL_REQUIRES(mu_) {
            const uint64_t step = step_++;
            operation.end = std::make_shared<EndStepCall>(
                Header(step), core_->Deadline(options),
                [self = shared_from_this(), step,
                 counted = std::move(counted)](const absl::Status& status) mutable {
                  self->OnStepEnded(step, status);
                  counted(status);
                  counted = nullptr;
                  self->Pump();
                });
          });
}

Call& SessionImpl::Operation::call() const {
  if (push != nullptr) return *push;
  return *end;
}

void SessionImpl::Enqueue(absl::Status refused, Callback user_done,
                          absl::FunctionRef<void(Operation&, Callback&)> make) {
  // A callback may close this rank, and so release the last other reference.
  const std::shared_ptr<SessionImpl> self = shared_from_this();
  Callback done = core_->Count(std::move(user_done));
  uint64_t id = 0;
  {
    MutexLock lock(mu_);
    if (refused.ok() && !closed_.ok()) refused = closed_;
    if (refused.ok() && operations_.size() >= kMaxWaitingCalls) refused = TooManyWaiting();
    if (refused.ok()) {
      Operation& operation = operations_.emplace_back();
      operation.id = id = next_id_++;
      make(operation, done);
    } else if (identity_.rank && closed_.ok()) {
      // Otherwise a caller that checks results later could end the step without it.
      closed_ = refused;
    }
  }
  if (!refused.ok()) {
    done(refused);
    return;
  }
  Pump();
  WatchDeadline(id);
}

void SessionImpl::Pull(absl::Span<const PullItem> items, const CallOptions& options,
                       Callback user_done) {
  Callback done = core_->Count(std::move(user_done));
  absl::Status refused = CheckItems(items);
  if (refused.ok() && std::any_of(items.begin(), items.end(),
                                  [](const PullItem& item) { return !item.slots.empty(); })) {
    refused = CheckEffectsAreKnown();
  }
  std::shared_ptr<PullCall> pull;
  const auto take_in = [&](uint64_t step) {
    pull = std::make_shared<PullCall>(shared_from_this(), items, step, core_->Deadline(options),
                                      std::move(done));
  };
  if (refused.ok()) {
    MutexLock lock(mu_);
    const bool waits = identity_.rank && !options.step && step_ > active_step_;
    if (!closed_.ok()) {
      refused = closed_;
    } else if (waits && waiting_pulls_.size() >= kMaxWaitingCalls) {
      refused = TooManyWaiting();
    } else {
      take_in(identity_.rank ? options.step.value_or(step_) : 0);
      if (waits) {
        const uint64_t id = next_id_++;
        const DeadlineQueue::Id timer = core_->deadlines().Add(
            pull->terms.deadline, [self = shared_from_this(), id] { self->ExpirePull(id); });
        waiting_pulls_.push_back({std::move(pull), id, timer});
        return;
      }
    }
  }
  if (!refused.ok()) {
    done(refused);
    return;
  }
  StartPull(std::move(pull));
}

void SessionImpl::PushPull(absl::Span<const PushItem> pushes, absl::Span<const PullItem> pulls,
                           const CallOptions& options, Callback done) {
  const MonotonicTime deadline = core_->Deadline(options);
  CallOptions pull_options;
  if (identity_.rank) pull_options.step = step();
  Push(pushes, options,
       [self = shared_from_this(), pulls = std::vector<PullItem>(pulls.begin(), pulls.end()),
        deadline, pull_options, done = std::move(done)](absl::Status status) mutable {
         if (!status.ok()) {
           done(std::move(status));
           return;
         }
         pull_options.timeout = deadline - self->core_->clock().Now();
         self->Pull(pulls, pull_options, std::move(done));
       });
}

void SessionImpl::StartPull(std::shared_ptr<PullCall> pull) {
  const bool granted =
      core_->pull_flow().Acquire(pull->terms.flow_step, pull->bytes(), pull->terms.deadline,
                                 [pull](const absl::Status& status) {
                                   if (status.ok()) {
                                     pull->set_granted();
                                     pull->SendSegments();
                                   } else {
                                     pull->MessageDone(status);
                                   }
                                 });
  if (!granted) return;
  pull->set_granted();
  pull->SendSegments();
}

void SessionImpl::Pump() {
  {
    MutexLock lock(mu_);
    if (pumping_) {
      pump_again_ = true;
      return;
    }
    pumping_ = true;
  }
  for (;;) {
    while (PumpOne()) {
    }
    MutexLock lock(mu_);
    if (!pump_again_) {
      pumping_ = false;
      return;
    }
    pump_again_ = false;
  }
}

bool SessionImpl::PumpOne() {
  Operation operation;
  std::shared_ptr<PushCall> granted;
  {
    MutexLock lock(mu_);
    if (granted_ != nullptr) {
      granted = granted_;
    } else {
      if (waits_for_bytes_ || ending_step_ || closing_step_ || assigning_ != nullptr ||
          operations_.empty()) {
        return false;
      }
      Operation& head = operations_.front();
      if (identity_.rank && head.call().header.step() > active_step_) return false;
      const bool ends_step = head.end != nullptr;
      const bool assigns = !ends_step && head.push->assigns();
      // A step that lacks a push is never ended, and no assignment starts without an earlier push;
      // Fail will answer the call.
      if ((ends_step || assigns) && (!ahead_.empty() || !broken_.ok())) return false;
      operation = std::move(head);
      operations_.pop_front();
      if (operation.timer) core_->deadlines().Remove(*operation.timer);
      (ends_step ? ending_step_ : waits_for_bytes_) = true;
      if (assigns) assigning_ = operation.push.get();
    }
  }
  if (granted != nullptr) return SendGranted(granted);
  if (operation.end != nullptr) {
    RestartOrdinals(operation.end->header.step());
    std::vector<uint32_t> partitions(next_ordinal_.size());
    std::iota(partitions.begin(), partitions.end(), 0);
    operation.end->Send(core_->messenger(), partitions, next_ordinal_);
    return true;
  }
  const std::shared_ptr<PushCall> push = operation.push;
  if (core_->push_flow().Acquire(push->terms.flow_step, push->bytes(), push->terms.deadline,
                                 [self = shared_from_this(), push](const absl::Status& status) {
                                   self->OnPushGranted(status, push);
                                   self->Pump();
                                 })) {
    OnPushGranted(absl::OkStatus(), push);
  }
  // If it was not granted at once, it may be by now.
  return true;
}

void SessionImpl::OnPushGranted(const absl::Status& status, std::shared_ptr<PushCall> push) {
  if (status.ok()) push->set_granted();
  {
    MutexLock lock(mu_);
    waits_for_bytes_ = false;
    BreakLocked(status);
    if (status.ok()) {
      granted_ = std::move(push);
      return;
    }
  }
  push->MessageDone(status);
}

bool SessionImpl::SendGranted(const std::shared_ptr<PushCall>& push) {
  const uint64_t segments = push->DivideItems(static_cast<uint32_t>(next_ordinal_.size()));
  absl::Status refused;
  {
    MutexLock lock(mu_);
    if (!broken_.ok()) {
      refused = broken_;
    } else if (segments > kMaxSegmentsAhead) {
      refused = absl::InvalidArgumentError(
          absl::StrCat("the push has ", segments, " segments in one partition; the limit is ",
                       kMaxSegmentsAhead, "; make several calls, or give the job more partitions"));
    } else if (!ahead_.empty() && segments_ahead_ + segments > kMaxSegmentsAhead) {
      if (!granted_timer_.has_value()) {
        granted_timer_ = core_->deadlines().Add(
            push->terms.deadline, [self = shared_from_this(), push] { self->ExpireGranted(push); });
      }
      return false;
    } else {
      segments_ahead_ += segments;
      push->set_ahead(ahead_.insert(ahead_.end(), Ahead{segments, false}));
    }
    granted_ = nullptr;
    if (granted_timer_.has_value())
      core_->deadlines().Remove(*std::exchange(granted_timer_, std::nullopt));
  }
  if (!refused.ok()) {
    push->MessageDone(refused);
    return true;
  }
  if (identity_.rank) RestartOrdinals(push->terms.flow_step);
  push->SendSegments(next_ordinal_);
  return true;
}

void SessionImpl::RestartOrdinals(uint64_t step) {
  if (step == ordinals_of_step_) return;
  std::fill(next_ordinal_.begin(), next_ordinal_.end(), 0);
  ordinals_of_step_ = step;
}

void SessionImpl::OnPushDone(const PushCall& push, std::optional<std::list<Ahead>::iterator> ahead,
                             const absl::Status& status) {
  // Refused before it had a place in the order of pushes. A step would lack it, but a free-running
  // session has none.
  const bool lacks_nothing = !ahead && !identity_.rank && absl::IsInvalidArgument(status);
  {
    MutexLock lock(mu_);
    if (!lacks_nothing) BreakLocked(status);
    if (assigning_ == &push) assigning_ = nullptr;
    if (ahead) {
      (*ahead)->done = true;
      while (!ahead_.empty() && ahead_.front().done) {
        segments_ahead_ -= ahead_.front().segments;
        ahead_.pop_front();
      }
    }
  }
  if (!status.ok() && !lacks_nothing) Fail(status);
}

void SessionImpl::CloseStep(uint64_t step) {
  {
    MutexLock lock(mu_);
    closing_step_ = true;
  }
  core_->step_closings().Begin(*identity_.rank);
  // Takes no place in the client's flow control, as EndStep: it must not wait for pulls, which may
  // wait for this step. It has no bytes, and a session closes one step at a time, so there are as
  // many as ranks.
  //
  // Without a deadline of its own: the calls that wait for it have theirs, and it ends with the
  // client at the latest.
  pawl::CloseStep(core_->messenger(), Header(step), static_cast<uint32_t>(next_ordinal_.size()),
                  core_->clip_global_norm(), core_->Deadline({.timeout = MonotonicDuration::max()}),
                  core_->Count([self = shared_from_this()](const absl::Status& status) {
                    self->OnStepClosed(status);
                  }));
}

void SessionImpl::OnStepClosed(const absl::Status& status) {
  if (status.ok()) {
    MutexLock lock(mu_);
    closing_step_ = false;
  } else {
    Fail(status);
  }
  core_->step_closings().End(*identity_.rank, status, !core_->failure().ok());
  Pump();
}

void SessionImpl::OnStepEnded(uint64_t step, const absl::Status& status) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  // Before the pushes of the next step can start.
  if (core_->clip_global_norm() > 0) CloseStep(step);
  std::vector<WaitingPull> ready;
  {
    MutexLock lock(mu_);
    ending_step_ = false;
    active_step_ = step + 1;
    const auto first_ready = std::stable_partition(
        waiting_pulls_.begin(), waiting_pulls_.end(),
        [step](const WaitingPull& pull) { return pull.pull->terms.flow_step > step + 1; });
    std::move(first_ready, waiting_pulls_.end(), std::back_inserter(ready));
    waiting_pulls_.erase(first_ready, waiting_pulls_.end());
  }
  for (WaitingPull& pull : ready) {
    if (pull.timer) core_->deadlines().Remove(*pull.timer);
    StartPull(std::move(pull.pull));
  }
}

void SessionImpl::BreakLocked(const absl::Status& status) {
  if (status.ok()) return;
  if (broken_.ok()) broken_ = status;
  if (closed_.ok()) closed_ = status;
}

void SessionImpl::Fail(const absl::Status& why) {
  std::deque<Operation> operations;
  std::vector<WaitingPull> pulls;
  {
    MutexLock lock(mu_);
    BreakLocked(why);
    operations.swap(operations_);
    pulls.swap(waiting_pulls_);
  }
  for (Operation& operation : operations) {
    if (operation.timer) core_->deadlines().Remove(*operation.timer);
    operation.call().MessageDone(why);
  }
  for (WaitingPull& pull : pulls) {
    if (pull.timer) core_->deadlines().Remove(*pull.timer);
    pull.pull->MessageDone(why);
  }
  // A push that waited for older ones ends now.
  Pump();
}

void SessionImpl::WatchDeadline(uint64_t id) {
  MutexLock lock(mu_);
  for (auto it = operations_.rbegin(); it != operations_.rend() && it->id >= id; ++it) {
    if (it->id != id) continue;
    it->timer = core_->deadlines().Add(
        it->call().terms.deadline, [self = shared_from_this(), id] { self->ExpireOperation(id); });
  }
}

void SessionImpl::ExpireOperation(uint64_t id) {
  const absl::Status status = NoTurn();
  std::optional<Operation> expired;
  {
    MutexLock lock(mu_);
    const auto it = std::find_if(operations_.begin(), operations_.end(),
                                 [id](const Operation& operation) { return operation.id == id; });
    if (it == operations_.end()) return;
    BreakLocked(status);
    expired = std::move(*it);
    operations_.erase(it);
  }
  // Later calls must not be executed without it.
  Fail(status);
  expired->call().MessageDone(status);
}

void SessionImpl::ExpireGranted(const std::shared_ptr<PushCall>& push) {
  {
    MutexLock lock(mu_);
    if (granted_ != push) return;
    BreakLocked(NoTurn());
  }
  // The pump finds the session broken and refuses the push.
  Pump();
}

void SessionImpl::ExpirePull(uint64_t id) {
  std::shared_ptr<PullCall> pull;
  {
    MutexLock lock(mu_);
    const auto it = std::find_if(waiting_pulls_.begin(), waiting_pulls_.end(),
                                 [id](const WaitingPull& waiting) { return waiting.id == id; });
    if (it == waiting_pulls_.end()) return;
    pull = std::move(it->pull);
    waiting_pulls_.erase(it);
  }
  pull->MessageDone(NoTurn());
}

}  // namespace pawl
