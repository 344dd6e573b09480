// A client's calls of the scheduler's methods.
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

// Makes them, again where nobody was there. Thread-safe. Owned by shared_ptr, which calls under way
// share.
class SchedulerCalls : public std::enable_shared_from_this<SchedulerCalls> {
 public:
  // `channel` and `clock` outlive the calls. `failure`: OK, or why nothing is called any more.
  SchedulerCalls(ControlChannel& channel, const Clock& clock, std::function<absl::Status()> failure)
      : channel_(channel), clock_(clock), failure_(std::move(failure)) {}

  // Calls `method` ("Register") until `deadline`, again after errors that pass
  // (client_lib/rpc/retry.h, IsPassing), each time after a longer Backoff. `done` gets failure() if
  // there is one. An attempt takes at most `attempt`: less than the call where an answer may be
  // lost without a trace, as in the simulation.
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
