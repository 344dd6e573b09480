// Rpcs that wait for an event, without a thread.
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

// Identifies a call for its cancellation. 0: no call.
using Ticket = uint64_t;

// Answers a call; runs once.
template <typename Response>
using Done = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

// The pending calls of one rpc, each with a key: what it waits for. Answers go into DeferredActions
// and run outside the owner's lock. Not thread-safe.
template <typename Key, typename Response>
class PendingCalls {
 public:
  void Suspend(Ticket ticket, Key key, Done<Response> done) {
    calls_.emplace(ticket, Call{std::move(key), std::move(done)});
  }

  // Answers the calls whose key satisfies `which`, oldest first.
  template <typename Which>
  void AnswerIf(Which which, const absl::StatusOr<Response>& answer, DeferredActions& actions) {
    // Shared: there may be many calls, and the answer may be large.
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

  void AnswerKey(const Key& key, const absl::StatusOr<Response>& answer, DeferredActions& actions) {
    AnswerIf([&](const Key& other) { return other == key; }, answer, actions);
  }

  void AnswerAll(const absl::StatusOr<Response>& answer, DeferredActions& actions) {
    AnswerIf([](const Key&) { return true; }, answer, actions);
  }

  // Answers one call and returns its key; nullopt if it is not pending.
  std::optional<Key> AnswerOne(Ticket ticket, const absl::StatusOr<Response>& answer,
                               DeferredActions& actions) {
    const auto it = calls_.find(ticket);
    if (it == calls_.end()) return std::nullopt;
    Key key = std::move(it->second.key);
    actions.Add([done = std::move(it->second.done), answer]() mutable { done(std::move(answer)); });
    calls_.erase(it);
    return key;
  }

  // Whether the key of some call satisfies `which`.
  template <typename Which>
  bool Any(Which which) const {
    return std::any_of(calls_.begin(), calls_.end(),
                       [&](const auto& call) { return which(call.second.key); });
  }

  // The key of the oldest call whose key satisfies `which`; nullopt if there is none.
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
