// A client's calls to the scheduler.
#ifndef PAWL_CLIENT_LIB_SESSION_SCHEDULER_CALLS_H_
#define PAWL_CLIENT_LIB_SESSION_SCHEDULER_CALLS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/control_channel.h"
#include "google/protobuf/message_lite.h"

namespace pawl {

// Makes calls, with retries while the scheduler cannot be reached. Thread-safe. Owned by
// shared_ptr, which calls in flight share.
class SchedulerCalls : public std::enable_shared_from_this<SchedulerCalls> {
 public:
  // `channel` and `clock` must outlive the calls. `failure` returns OK, or why calls must end.
  SchedulerCalls(ControlChannel& channel, const Clock& clock, std::function<absl::Status()> failure)
      : channel_(channel), clock_(clock), failure_(std::move(failure)) {}

  // Calls `method` ("Register") until `deadline`. Retries after passing errors
  // (client_lib/rpc/retry.h, IsTransientError), with growing Backoff. `done` gets failure() if that
  // is not OK. An attempt takes at most `attempt`, which must be shorter than the call where
  // answers can be lost without a trace, as in the simulation.
  void Call(const std::string& method, std::shared_ptr<const google::protobuf::MessageLite> request,
            std::shared_ptr<google::protobuf::MessageLite> response, MonotonicTime deadline,
            absl::AnyInvocable<void(absl::Status)> done,
            MonotonicDuration attempt = MonotonicDuration::max());

 private:
  struct OneCall;

  void Attempt(std::shared_ptr<OneCall> call);
  void OnAnswer(std::shared_ptr<OneCall> call, const absl::Status& status,
                const IncomingMessage& answer);

  ControlChannel& channel_;
  const Clock& clock_;
  const std::function<absl::Status()> failure_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_SCHEDULER_CALLS_H_
