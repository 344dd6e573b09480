// Asking every server the same thing, until all have answered.
#ifndef PAWL_SCHEDULER_SERVER_ROUNDS_H_
#define PAWL_SCHEDULER_SERVER_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "scheduler/deferred_actions.h"

namespace pawl {

// The rounds in progress. A server that is UNAVAILABLE is asked again at the next Tick, until the round's
// deadline: whether it is dead, its lease decides, and calls are idempotent. Any other error ends the round.
// Not thread-safe; time is passed in, calls leave through DeferredActions.
class ServerRounds {
 public:
  // Asks server number `server`; its answer comes back through Answer(round, server, ...).
  using Ask = std::function<void(uint64_t round, size_t server, MonotonicDuration timeout)>;
  // The first error, naming the server, or OK when all have answered. Runs within Answer or Tick.
  using RoundDone = absl::AnyInvocable<void(absl::Status, DeferredActions&)>;

  // `servers`: what to call them in errors.
  void Start(std::string what, std::vector<std::string> servers, MonotonicTime now, MonotonicDuration timeout, Ask ask,
             RoundDone done, DeferredActions& actions);

  // Answers of rounds that are over are ignored.
  void Answer(uint64_t round, size_t server, const absl::Status& status, DeferredActions& actions);

  // Asks again and ends what is too late.
  void Tick(MonotonicTime now, DeferredActions& actions);

  // Forgets all rounds; their `done` does not run.
  void Abandon() { rounds_.clear(); }

 private:
  enum class Standing { kAsked, kToAskAgain, kAnswered };
  struct Round {
    std::string what;
    std::vector<std::string> servers;
    std::vector<Standing> standing;
    size_t missing = 0;
    MonotonicTime deadline;
    absl::Status last_error;
    Ask ask;
    RoundDone done;
  };

  void End(uint64_t id, const absl::Status& status, DeferredActions& actions);

  std::map<uint64_t, Round> rounds_;
  uint64_t last_round_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_SERVER_ROUNDS_H_
