// When a process that died is restarted.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_RESTART_POLICY_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_RESTART_POLICY_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "client_lib/base/clock.h"

namespace pawl {

// The first restart of a process is delayed by kFirstRestartDelay. The delay doubles, up to
// kMaxRestartDelay, with every consecutive incarnation shorter than kMinStableRun: a process that
// dies at once will probably die again, and its restarts take processor time from others.
inline constexpr std::chrono::milliseconds kFirstRestartDelay{100};
inline constexpr std::chrono::milliseconds kMaxRestartDelay{5000};
inline constexpr std::chrono::seconds kMinStableRun{30};

// A pure decision: it knows neither processes nor clocks. Not thread-safe.
class RestartPolicy {
 public:
  // `max_restarts`: of all processes together.
  explicit RestartPolicy(uint32_t max_restarts) : max_restarts_(max_restarts) {}

  // Counts a restart of `process`, which died after `lifetime`, and returns the delay before it;
  // nullopt if all restarts are used up.
  std::optional<MonotonicDuration> OnDeath(const std::string& process, MonotonicDuration lifetime);

  uint32_t max_restarts() const { return max_restarts_; }
  uint32_t restarts() const { return restarts_; }
  uint32_t restarts_of(const std::string& process) const;

 private:
  struct Record {
    uint32_t restarts = 0;
    uint32_t short_runs = 0;
  };

  const uint32_t max_restarts_;
  uint32_t restarts_ = 0;
  std::map<std::string, Record> records_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_RESTART_POLICY_H_
