#include "scheduler/rpc/server_rounds.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/retry.h"

namespace pawl {

void ServerRounds::Start(std::string what, const Time& time, SendCall send, RoundDone done,
                         DeferredActions& actions) {
  Round round;
  round.what = std::move(what);
  round.timeout = time.timeout;
  round.send = std::move(send);
  round.done = std::move(done);
  Begin(std::move(round), time.now, actions);
}

void ServerRounds::Begin(Round round, MonotonicTime now, DeferredActions& actions) {
  const uint64_t attempt = ++last_attempt_;
  round.calls.clear();
  round.last_error = absl::OkStatus();
  if (targets_.has_value()) {
    round.deadline = now + round.timeout;
    round.missing = targets_->servers.size();
    round.calls.assign(round.missing, CallState::kAsked);
    for (size_t server = 0; server < round.missing; ++server) {
      RoundCall call{attempt, server, targets_->servers[server].address, targets_->epoch,
                     round.timeout};
      actions.Add([send = round.send, call = std::move(call)] { send(call); });
    }
  }
  rounds_.emplace(attempt, std::move(round));
}

void ServerRounds::SetTargets(std::optional<Targets> targets, MonotonicTime now,
                              DeferredActions& actions) {
  targets_ = std::move(targets);
  std::map<uint64_t, Round> before = std::exchange(rounds_, {});
  for (auto& [attempt, round] : before) Begin(std::move(round), now, actions);
}

bool ServerRounds::Awaits(uint64_t attempt, size_t server) const {
  const auto it = rounds_.find(attempt);
  return it != rounds_.end() && server < it->second.calls.size() &&
         it->second.calls[server] == CallState::kAsked;
}

void ServerRounds::Answer(uint64_t attempt, size_t server, const absl::Status& status,
                          DeferredActions& actions) {
  if (!Awaits(attempt, server)) return;
  Round& round = rounds_.at(attempt);
  if (status.ok()) {
    round.calls[server] = CallState::kAnswered;
    if (--round.missing == 0) End(attempt, absl::OkStatus(), actions);
    return;
  }
  const absl::Status error =
      Annotate(status, absl::StrCat(targets_->servers[server].node, ": ", round.what));
  if (!IsTransientError(status)) {
    End(attempt, error, actions);
    return;
  }
  round.calls[server] = CallState::kRetry;
  round.last_error = error;
}

void ServerRounds::Postpone(MonotonicDuration by) {
  for (auto& [attempt, round] : rounds_) round.deadline += by;
}

void ServerRounds::Tick(MonotonicTime now, DeferredActions& actions) {
  if (!targets_.has_value()) return;
  std::vector<std::pair<uint64_t, absl::Status>> late;
  for (auto& [attempt, round] : rounds_) {
    for (size_t server = 0; server < round.calls.size(); ++server) {
      const Target& target = targets_->servers[server];
      if (now >= round.deadline && round.calls[server] != CallState::kAnswered) {
        late.emplace_back(attempt, !round.last_error.ok()
                                       ? round.last_error
                                       : absl::DeadlineExceededError(absl::StrCat(
                                             target.node, ": ", round.what, ": no answer")));
        break;
      }
      if (round.calls[server] != CallState::kRetry) continue;
      round.calls[server] = CallState::kAsked;
      RoundCall call{attempt, server, target.address, targets_->epoch, round.deadline - now};
      actions.Add([send = round.send, call = std::move(call)] { send(call); });
    }
  }
  for (const auto& [attempt, status] : late) End(attempt, status, actions);
}

void ServerRounds::End(uint64_t attempt, const absl::Status& status, DeferredActions& actions) {
  auto node = rounds_.extract(attempt);
  // The end of another round may have abandoned it.
  if (!node.empty()) node.mapped().done(status, actions);
}

}  // namespace pawl
