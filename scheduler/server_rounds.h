// Asking the servers the same thing, until it is done in every partition.
#ifndef PAWL_SCHEDULER_SERVER_ROUNDS_H_
#define PAWL_SCHEDULER_SERVER_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "scheduler/deferred_actions.h"

namespace pawl {

// The rounds in progress. A round asks every server that is primary of a partition. When other servers become
// primaries it begins anew with them, since what it asks is idempotent: so it ends only when those that are primaries
// of all partitions have all done it. While some partition has no primary, rounds wait, without a deadline.
//
// A server whose error IsPassing (client_lib/rpc/retry.h) is asked again at the next Tick, until the round's deadline, which
// counts from the last change of the primaries, without the time of Postpone: whether it is dead, its lease decides. Any
// other error ends the round. Not thread-safe; time is passed in, calls leave through DeferredActions.
class ServerRounds {
 public:
  struct Target {
    // What to call it in errors.
    std::string node;
    std::string address;
  };
  // The primaries of all partitions, as they are since `epoch`.
  struct Targets {
    uint64_t epoch = 0;
    std::vector<Target> servers;
  };
  // One question to one server. Its answer comes back through Answer(attempt, server, ...).
  struct Question {
    uint64_t attempt = 0;
    size_t server = 0;
    std::string address;
    uint64_t epoch = 0;
    MonotonicDuration timeout{};
  };
  using Ask = std::function<void(const Question&)>;
  // The first error, naming the server, or OK when all have answered. Runs within Answer, Tick or SetTargets.
  using RoundDone = absl::AnyInvocable<void(absl::Status, DeferredActions&)>;

  void Start(std::string what, MonotonicTime now, MonotonicDuration timeout, Ask ask, RoundDone done,
             DeferredActions& actions);

  // The primaries have changed; nullopt: some partition has none.
  void SetTargets(std::optional<Targets> targets, MonotonicTime now, DeferredActions& actions);

  // Whether this answer is still waited for.
  bool Awaits(uint64_t attempt, size_t server) const;
  // Answers that nobody waits for are ignored.
  void Answer(uint64_t attempt, size_t server, const absl::Status& status, DeferredActions& actions);

  // Moves all deadlines by a time in which no question could go out.
  void Postpone(MonotonicDuration by);
  // Asks again and ends what is too late.
  void Tick(MonotonicTime now, DeferredActions& actions);

  // Forgets all rounds; their `done` does not run.
  void Abandon() { rounds_.clear(); }

 private:
  enum class Standing { kAsked, kToAskAgain, kAnswered };
  struct Round {
    std::string what;
    MonotonicDuration timeout{};
    // Of each target; empty while there are no targets.
    std::vector<Standing> standing;
    size_t missing = 0;
    MonotonicTime deadline;
    absl::Status last_error;
    Ask ask;
    RoundDone done;
  };

  void Begin(Round round, MonotonicTime now, DeferredActions& actions);
  void End(uint64_t attempt, const absl::Status& status, DeferredActions& actions);

  std::optional<Targets> targets_;
  // By attempt: a round that begins anew gets a new number, so that answers to the one before are known.
  std::map<uint64_t, Round> rounds_;
  uint64_t last_attempt_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_SERVER_ROUNDS_H_
