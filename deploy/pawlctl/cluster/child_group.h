// Child processes that are restarted when they die.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_CHILD_GROUP_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_CHILD_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/child_process.h"
#include "deploy/pawlctl/cluster/restart_policy.h"

namespace pawl {

// Kills its processes on destruction. Used by the main thread only (see ChildProcess).
class ChildGroup {
 public:
  struct Child {
    // The name at its first start: "server-0".
    std::string key;
    std::unique_ptr<ChildProcess> process;
    MonotonicTime started;
    std::optional<MonotonicTime> start_again_at = std::nullopt;
    // TakeEnded has returned it.
    bool taken = false;
  };

  explicit ChildGroup(uint32_t max_restarts) : restart_policy_(max_restarts) {}

  // `options.name` is the key.
  absl::Status Start(ChildOptions options);

  // In the order of their starts. Valid until the next Start.
  std::vector<Child>& children() { return children_; }
  const std::vector<Child>& children() const { return children_; }

  // The processes that have ended since the last call. Valid until they are restarted.
  std::vector<ChildProcess*> TakeEnded();
  // The number of running processes.
  size_t Running();
  // Whether TakeEnded has returned all processes, and none will be restarted.
  bool IsDone() const;
  void SignalAll(int signal);

  // Schedules the restart of an ended process with the same command. Returns the delay; nullopt if
  // all restarts are used up.
  std::optional<MonotonicDuration> Restart(const ChildProcess& ended, MonotonicTime now);
  // Starts the processes whose delay has passed. An error names the first that could not start.
  absl::Status StartDue(MonotonicTime now);
  // The time of the next scheduled restart.
  std::optional<MonotonicTime> next_start() const;
  void CancelRestarts();
  const RestartPolicy& restart_policy() const { return restart_policy_; }
  // The number of restarts of each process, by its present name.
  std::map<std::string, uint32_t> Restarts() const;

  // REQUIRES: the process is one of the group.
  Child& Find(const ChildProcess& process);

 private:
  RestartPolicy restart_policy_;
  std::vector<Child> children_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_CHILD_GROUP_H_
