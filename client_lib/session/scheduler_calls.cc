#include "client_lib/session/scheduler_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/random.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/retry.h"

namespace pawl {

struct SchedulerCalls::OneCall {
  std::string name;
  std::shared_ptr<const google::protobuf::MessageLite> request;
  std::shared_ptr<google::protobuf::MessageLite> response;
  MonotonicTime deadline;
  MonotonicDuration attempt;
  absl::AnyInvocable<void(absl::Status)> done;
  int retries = 0;
  absl::Status last_error = absl::OkStatus();

  absl::Status OutOfTime() const {
    return absl::DeadlineExceededError(
        absl::StrCat(name, ": the scheduler did not answer in time",
                     last_error.ok() ? "" : "; the last error: ", last_error.message()));
  }
};

void SchedulerCalls::Call(const std::string& method,
                          std::shared_ptr<const google::protobuf::MessageLite> request,
                          std::shared_ptr<google::protobuf::MessageLite> response,
                          MonotonicTime deadline, absl::AnyInvocable<void(absl::Status)> done,
                          MonotonicDuration attempt) {
  Attempt(
      std::make_shared<OneCall>(OneCall{"/pawl.Scheduler/" + method, std::move(request),
                                        std::move(response), deadline, attempt, std::move(done)}));
}

void SchedulerCalls::Attempt(std::shared_ptr<OneCall> call) {
  const MonotonicDuration left = call->deadline - clock_.Now();
  absl::Status error = failure_();
  if (error.ok() && left <= MonotonicDuration::zero()) error = call->OutOfTime();
  if (!error.ok()) {
    call->done(std::move(error));
    return;
  }
  channel_.Call(
      call->name, EncodeSmall(*call->request), std::min(call->attempt, left),
      [self = shared_from_this(), call](const absl::Status& status, const IncomingMessage& answer) {
        self->OnAnswer(call, status, answer);
      });
}

void SchedulerCalls::OnAnswer(std::shared_ptr<OneCall> call, const absl::Status& status,
                              const IncomingMessage& answer) {
  if (status.ok()) {
    call->done(DecodeControl(answer.bytes, *call->response));
    return;
  }
  call->last_error = status;
  const absl::Status why = failure_();
  const MonotonicDuration delay = PushbackOf(status, Backoff(call->retries, RandomNumber()));
  if (!why.ok() || !IsTransientError(status) || clock_.Now() + delay >= call->deadline) {
    call->done(!why.ok() ? why : IsUnanswered(status) ? call->OutOfTime() : status);
    return;
  }
  ++call->retries;
  channel_.After(delay,
                 [self = shared_from_this(), call = std::move(call)] { self->Attempt(call); });
}

}  // namespace pawl
