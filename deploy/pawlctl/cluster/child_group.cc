#include "deploy/pawlctl/cluster/child_group.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

absl::Status ChildGroup::Start(ChildOptions options) {
  std::string key = options.name;
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child,
                        ChildProcess::Start(std::move(options)));
  children_.push_back(
      {.key = std::move(key), .process = std::move(child), .started = Clock::Real().Now()});
  return absl::OkStatus();
}

std::vector<ChildProcess*> ChildGroup::TakeEnded() {
  std::vector<ChildProcess*> ended;
  for (Child& child : children_) {
    if (child.taken || !child.process->HasEnded()) continue;
    child.taken = true;
    ended.push_back(child.process.get());
  }
  return ended;
}

size_t ChildGroup::Running() {
  size_t running = 0;
  for (Child& child : children_) running += !child.process->HasEnded();
  return running;
}

bool ChildGroup::IsDone() const {
  return std::all_of(children_.begin(), children_.end(), [](const Child& child) {
    return child.taken && !child.start_again_at.has_value();
  });
}

void ChildGroup::SignalAll(int signal) {
  for (Child& child : children_) child.process->Signal(signal);
}

ChildGroup::Child& ChildGroup::Find(const ChildProcess& process) {
  for (Child& child : children_) {
    if (child.process.get() == &process) return child;
  }
  std::abort();
}

std::optional<MonotonicDuration> ChildGroup::Restart(const ChildProcess& ended, MonotonicTime now) {
  Child& child = Find(ended);
  const std::optional<MonotonicDuration> delay =
      restart_policy_.OnDeath(child.key, now - child.started);
  if (delay.has_value()) child.start_again_at = now + *delay;
  return delay;
}

absl::Status ChildGroup::StartDue(MonotonicTime now) {
  absl::Status result;
  for (Child& child : children_) {
    if (!child.start_again_at.has_value() || *child.start_again_at > now) continue;
    child.start_again_at.reset();
    ChildOptions options = child.process->options();
    options.append_to_log = true;
    absl::StatusOr<std::unique_ptr<ChildProcess>> process = ChildProcess::Start(std::move(options));
    if (!process.ok()) {
      if (result.ok()) result = process.status();
      continue;
    }
    child.process = *std::move(process);
    child.started = now;
    child.taken = false;
  }
  return result;
}

std::optional<MonotonicTime> ChildGroup::next_start() const {
  std::optional<MonotonicTime> next;
  for (const Child& child : children_) {
    if (child.start_again_at.has_value())
      next = std::min(next.value_or(*child.start_again_at), *child.start_again_at);
  }
  return next;
}

void ChildGroup::CancelRestarts() {
  for (Child& child : children_) child.start_again_at.reset();
}

std::map<std::string, uint32_t> ChildGroup::Restarts() const {
  std::map<std::string, uint32_t> restarts;
  for (const Child& child : children_)
    restarts[child.process->name()] += restart_policy_.restarts_of(child.key);
  return restarts;
}

}  // namespace pawl
