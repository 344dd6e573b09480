#include "deploy/pawlctl/cluster/restart_policy.h"

#include "client_lib/rpc/retry.h"

namespace pawl {

std::optional<MonotonicDuration> RestartPolicy::OnDeath(const std::string& process,
                                                        MonotonicDuration lifetime) {
  if (restarts_ == max_restarts_) return std::nullopt;
  Record& record = records_[process];
  ++restarts_;
  ++record.restarts;
  if (lifetime >= kMinStableRun) record.short_runs = 0;
  return GrowingPause(++record.short_runs, kFirstRestartDelay, kMaxRestartDelay);
}

uint32_t RestartPolicy::restarts_of(const std::string& process) const {
  const auto it = records_.find(process);
  return it == records_.end() ? 0 : it->second.restarts;
}

}  // namespace pawl
