// Rpcs that wait for something to happen, without a thread.
#ifndef PAWL_SCHEDULER_RPC_PENDING_CALLS_H_
#define PAWL_SCHEDULER_RPC_PENDING_CALLS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "scheduler/rpc/deferred_actions.h"

namespace pawl {

// Names a call, so that it can be cancelled. 0 names none.
using Ticket = uint64_t;

// Answers a call; runs once.
template <typename Response>
using Done = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

// The pending calls of one rpc, each with what it waits for. Answers go into
// DeferredActions, to be given outside the owner's lock. Not thread-safe.
template <typename Key, typename Response>
class PendingCalls {
 public:
  void Suspend(Ticket ticket, Key key, Done<Response> done) {
    calls_.emplace(ticket, Call{std::move(key), std::move(done)});
  }

  // Answers every call for whose key `which(key)` holds, in the order in which they were pending.
  template <typename Which>
  void AnswerIf(Which which, const absl::StatusOr<Response>& answer, DeferredActions& actions) {
    // One for all: there may be many calls, and the answer may be large.
    std::shared_ptr<const absl::StatusOr<Response>> shared;
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (!which(it->second.key)) {
        ++it;
        continue;
      }
      if (shared == nullptr) shared = std::make_shared<const absl::StatusOr<Response>>(answer);
      actions.Add([done = std::move(it->second.done), shared]() mutable { done(*shared); });
      it = calls_.erase(it);
    }
  }

  void AnswerAll(const absl::StatusOr<Response>& answer, DeferredActions& actions) {
    AnswerIf([](const Key&) { return true; }, answer, actions);
  }

  // Answers one call and returns what it waited for; nullopt if it is not pending (any more).
  std::optional<Key> AnswerOne(Ticket ticket, const absl::StatusOr<Response>& answer,
                               DeferredActions& actions) {
    const auto it = calls_.find(ticket);
    if (it == calls_.end()) return std::nullopt;
    Key key = std::move(it->second.key);
    actions.Add([done = std::move(it->second.done), answer]() mutable { done(std::move(answer)); });
    calls_.erase(it);
    return key;
  }

  // Whether one waits for whose key `which(key)` holds.
  template <typename Which>
  bool Any(Which which) const {
    return std::any_of(calls_.begin(), calls_.end(),
                       [&](const auto& call) { return which(call.second.key); });
  }

  // What the one that was pending first among those waits for; nullopt if there is none.
  template <typename Which>
  std::optional<Key> FindKey(Which which) const {
    const auto it = std::find_if(calls_.begin(), calls_.end(),
                                 [&](const auto& call) { return which(call.second.key); });
    return it == calls_.end() ? std::nullopt : std::optional<Key>(it->second.key);
  }

  size_t size() const { return calls_.size(); }

 private:
  struct Call {
    Key key;
    Done<Response> done;
  };

  // By ticket: the order of arrival.
  std::map<Ticket, Call> calls_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_PENDING_CALLS_H_
