// When a process that has died is started again.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_RESTART_POLICY_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_RESTART_POLICY_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "client_lib/base/clock.h"

namespace pawl {

// The delay before a process is started again is kFirstRestartDelay; it doubles, up to
// kMaxRestartDelay, with every incarnation in a row that was shorter than kLongRun: what dies at
// once will do so again, and others need the machine.
inline constexpr std::chrono::milliseconds kFirstRestartDelay{100};
inline constexpr std::chrono::milliseconds kMaxRestartDelay{5000};
inline constexpr std::chrono::seconds kLongRun{30};

// Decides alone: it knows neither processes nor clocks. Not thread-safe.
class RestartPolicy {
 public:
  // Of all processes together.
  explicit RestartPolicy(uint32_t max_restarts) : max_restarts_(max_restarts) {}

  // `process` has died after having run for `lifetime`: how long to wait before it is started
  // again, which counts as one restart; nullopt if there are no more.
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
