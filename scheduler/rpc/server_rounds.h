// Calls to all servers that are repeated until every partition has answered.
#ifndef PAWL_SCHEDULER_RPC_SERVER_ROUNDS_H_
#define PAWL_SCHEDULER_RPC_SERVER_ROUNDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "scheduler/rpc/deferred_actions.h"
#include "scheduler/rpc/server_caller.h"

namespace pawl {

// The rounds in progress. A round calls every server that is the primary of a partition. Its rpcs
// are idempotent, so it restarts when the primaries change, and ends when the primaries of all
// partitions have answered. While some partition has no primary, rounds wait without a deadline.
//
// A server whose error IsTransientError (client_lib/rpc/retry.h) is asked again at the next Tick,
// until the round's deadline; its lease decides whether it is dead. The deadline counts from the
// last change of the primaries, without postponed time. Any other error ends the round. Time is
// passed in, and calls are sent through DeferredActions. Not thread-safe.
class ServerRounds {
 public:
  // Enters the owner's critical section from any thread: runs `take` under its lock, and the
  // actions after it.
  using Enter = std::function<void(absl::FunctionRef<void(DeferredActions&)> take)>;
  // `servers` outlives this; its callbacks must not run after the destruction of this.
  ServerRounds(ServerCaller& servers, Enter enter) : servers_(servers), enter_(std::move(enter)) {}

  struct Target {
    // Its name in errors.
    std::string node;
    std::string address;
  };
  // The primaries of all partitions, unchanged since `epoch`.
  struct Targets {
    uint64_t epoch = 0;
    std::vector<Target> servers;
  };
  // The start and the timeout of a round.
  struct Time {
    MonotonicTime now;
    MonotonicDuration timeout{};
    // A server that does not answer one call within this time is asked again.
    MonotonicDuration call_timeout = MonotonicDuration::max();
  };
  // Gets the first error, which names the server, or OK when all have answered. Runs in Enter's
  // `take`, Tick or SetTargets.
  using RoundDone = absl::AnyInvocable<void(absl::Status, DeferredActions&)>;
  template <typename Response>
  using GatherDone =
      absl::AnyInvocable<void(absl::StatusOr<std::vector<Response>>, DeferredActions&)>;
  // Starts a round. `what` is for errors. The request gets the routing epoch of the primaries.
  // `done` gets one answer of each primary at the round's end.
  template <typename Request, typename Response>
  void Gather(std::string what, const Time& time, ServerRpc<Request, Response> rpc,
              const Request& request, std::type_identity_t<GatherDone<Response>> done,
              DeferredActions& actions);
  // The same for answers without contents.
  template <typename Request, typename Response>
  void Ask(std::string what, const Time& time, ServerRpc<Request, Response> rpc,
           const Request& request, RoundDone done, DeferredActions& actions);

  // The primaries have changed; nullopt: some partition has none.
  void SetTargets(std::optional<Targets> targets, MonotonicTime now, DeferredActions& actions);

  // Extends all deadlines by a time in which no call could be sent.
  void Postpone(MonotonicDuration by);
  // Repeats calls and ends late rounds.
  void Tick(MonotonicTime now, DeferredActions& actions);

  // Drops all rounds; their `done` does not run.
  void Abandon() { rounds_.clear(); }

 private:
  // One call to one server. Its answer arrives at Answer(attempt, server, ...).
  struct RoundCall {
    uint64_t attempt = 0;
    size_t server = 0;
    std::string address;
    uint64_t epoch = 0;
    MonotonicDuration timeout{};
  };
  using SendCall = std::function<void(const RoundCall&)>;
  enum class CallState { kAsked, kRetry, kAnswered };
  struct Round {
    std::string what;
    MonotonicDuration timeout{};
    // By target; empty while there are no targets.
    std::vector<CallState> calls;
    size_t missing = 0;
    MonotonicTime deadline;
    absl::Status last_error;
    SendCall send;
    RoundDone done;
  };

  void Start(std::string what, const Time& time, SendCall send, RoundDone done,
             DeferredActions& actions);
  void Begin(Round round, MonotonicTime now, DeferredActions& actions);
  // Whether this answer is still expected.
  bool Awaits(uint64_t attempt, size_t server) const;
  // Unexpected answers are ignored.
  void Answer(uint64_t attempt, size_t server, const absl::Status& status,
              DeferredActions& actions);
  void End(uint64_t attempt, const absl::Status& status, DeferredActions& actions);

  ServerCaller& servers_;
  const Enter enter_;
  std::optional<Targets> targets_;
  // By attempt: a restarted round gets a new number, so that answers to the previous attempt are
  // recognised.
  std::map<uint64_t, Round> rounds_;
  uint64_t last_attempt_ = 0;
};

template <typename Request, typename Response>
void ServerRounds::Gather(std::string what, const Time& time, ServerRpc<Request, Response> rpc,
                          const Request& request, std::type_identity_t<GatherDone<Response>> done,
                          DeferredActions& actions) {
  // The responses of the newest attempt, by server.
  struct Responses {
    uint64_t attempt = 0;
    std::map<size_t, Response> by_server;
  };
  auto responses = std::make_shared<Responses>();
  auto send = [this, rpc, request, call_timeout = time.call_timeout,
               responses](const RoundCall& call) {
    Request asked = request;
    asked.set_routing_epoch(call.epoch);
    auto response = std::make_shared<Response>();
    const auto on_answer = [this, responses, response, attempt = call.attempt,
                            server = call.server](const absl::Status& status) {
      enter_([&](DeferredActions& actions) {
        if (!Awaits(attempt, server)) return;
        if (responses->attempt != attempt) *responses = {attempt, {}};
        if (status.ok()) responses->by_server[server] = std::move(*response);
        Answer(attempt, server, status, actions);
      });
    };
    servers_.Call(call.address, rpc.name, asked, std::min(call.timeout, call_timeout), response,
                  on_answer);
  };
  Start(
      std::move(what), time, std::move(send),
      [responses, done = std::move(done)](const absl::Status& status,
                                          DeferredActions& actions) mutable {
        std::vector<Response> all;
        for (auto& [server, response] : responses->by_server) all.push_back(std::move(response));
        done(status.ok() ? absl::StatusOr<std::vector<Response>>(std::move(all)) : status, actions);
      },
      actions);
}

template <typename Request, typename Response>
void ServerRounds::Ask(std::string what, const Time& time, ServerRpc<Request, Response> rpc,
                       const Request& request, RoundDone done, DeferredActions& actions) {
  Gather(
      std::move(what), time, rpc, request,
      [done = std::move(done)](const absl::StatusOr<std::vector<Response>>& answers,
                               DeferredActions& actions) mutable {
        done(answers.status(), actions);
      },
      actions);
}

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_SERVER_ROUNDS_H_
