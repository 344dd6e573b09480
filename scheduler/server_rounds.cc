#include "scheduler/server_rounds.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

void ServerRounds::Start(std::string what, std::vector<std::string> servers, MonotonicTime now,
                         MonotonicDuration timeout, Ask ask, RoundDone done, DeferredActions& actions) {
  const uint64_t id = ++last_round_;
  Round& round = rounds_[id];
  round.what = std::move(what);
  round.standing.assign(servers.size(), Standing::kAsked);
  round.missing = servers.size();
  round.servers = std::move(servers);
  round.deadline = now + timeout;
  round.ask = ask;
  round.done = std::move(done);
  if (round.missing == 0) {
    End(id, absl::OkStatus(), actions);
    return;
  }
  for (size_t server = 0; server < round.servers.size(); ++server) {
    actions.Add([ask, id, server, timeout] { ask(id, server, timeout); });
  }
}

void ServerRounds::Answer(uint64_t id, size_t server, const absl::Status& status, DeferredActions& actions) {
  const auto it = rounds_.find(id);
  if (it == rounds_.end() || it->second.standing[server] != Standing::kAsked) return;
  Round& round = it->second;
  if (status.ok()) {
    round.standing[server] = Standing::kAnswered;
    if (--round.missing == 0) End(id, absl::OkStatus(), actions);
    return;
  }
  const absl::Status error = Annotate(status, absl::StrCat(round.servers[server], ": ", round.what));
  if (!absl::IsUnavailable(status)) {
    End(id, error, actions);
    return;
  }
  round.standing[server] = Standing::kToAskAgain;
  round.last_error = error;
}

void ServerRounds::Tick(MonotonicTime now, DeferredActions& actions) {
  std::vector<std::pair<uint64_t, absl::Status>> late;
  for (auto& [id, round] : rounds_) {
    for (size_t server = 0; server < round.servers.size(); ++server) {
      if (now >= round.deadline && round.standing[server] != Standing::kAnswered) {
        late.emplace_back(id, !round.last_error.ok() ? round.last_error
                                                     : absl::DeadlineExceededError(absl::StrCat(
                                                           round.servers[server], ": ", round.what, ": no answer")));
        break;
      }
      if (round.standing[server] != Standing::kToAskAgain) continue;
      round.standing[server] = Standing::kAsked;
      actions.Add([ask = round.ask, id = id, server, timeout = round.deadline - now] { ask(id, server, timeout); });
    }
  }
  for (const auto& [id, status] : late) End(id, status, actions);
}

void ServerRounds::End(uint64_t id, const absl::Status& status, DeferredActions& actions) {
  auto node = rounds_.extract(id);
  node.mapped().done(status, actions);
}

}  // namespace pawl
