// A scheduler, servers and workers as processes on this machine.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_CLUSTER_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/child_process.h"
#include "deploy/pawlctl/cluster/out_folder.h"
#include "deploy/pawlctl/cluster/restart_policy.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Of each role on one machine; beyond it there would be nothing but switching between them.
inline constexpr uint32_t kMaxLocalNodes = 64;

// The daemons' executables.
struct Programs {
  std::string scheduler;
  std::string server;
  std::string worker;
};

// Looks in `bin_folder` if it is not empty (the environment's PAWL_BIN_DIR), else beside
// `own_program`, else where Bazel builds them relative to it. NOT_FOUND saying what was looked for
// and how to have it.
absl::StatusOr<Programs> FindPrograms(const std::string& own_program,
                                      const std::string& bin_folder);

// The processes of one run. What is left of them is killed on destruction. For one
// thread, the main one (see ChildProcess).
class LocalCluster {
 public:
  // `out` outlives this. `devices`: see RunOptions; `worker_flags` are given to each worker
  // besides.
  LocalCluster(Programs programs, const OutFolder& out, uint32_t servers, uint32_t workers,
               uint32_t max_restarts, std::vector<std::string> devices = {},
               std::vector<std::string> worker_flags = {});

  // Starts the scheduler with the folder's job file, at a free port that it keeps over its
  // restarts.
  absl::Status StartScheduler(const std::vector<std::string>& more_flags = {});
  // The address that the scheduler listens at; empty if it does not yet.
  std::string SchedulerAddress() const;
  // Starts the servers and workers. On failure those started so far go on.
  absl::Status StartNodes(const std::string& scheduler_address);
  // Starts as many more as the job has been scaled to and has not. On failure those started so far
  // go on.
  absl::Status StartMissing(const GetStatusResponse& status);

  // Gives each node's process and log the name that the scheduler knows it by, once
  // that is known: nodes are numbered in the order of their registration.
  void NameNodes(const GetStatusResponse& status);
  // True if the scheduler knows the process.
  static bool IsRegistered(const GetStatusResponse& status, const ChildProcess& child);

  // REQUIRES: StartScheduler succeeded.
  ChildProcess& scheduler() { return *children_.front().process; }
  // The processes that have ended since the last call; good until they are started again.
  std::vector<ChildProcess*> TakeEnded();
  // True if the scheduler has known the process, in this incarnation or an earlier one.
  bool WasRegistered(const ChildProcess& child);
  // Those that run.
  size_t Running();
  void SignalAll(int signal);

  // Lets a process that has ended begin another incarnation by its same command, when the policy
  // says; returns how long that is from now, or nullopt if all restarts are used up.
  std::optional<MonotonicDuration> Restart(const ChildProcess& ended, MonotonicTime now);
  // Starts those whose time has come. An error names the first that could not be started.
  absl::Status StartDue(MonotonicTime now);
  // When the next one is to start.
  std::optional<MonotonicTime> next_start() const;
  void CancelRestarts();
  const RestartPolicy& restart_policy() const { return restart_policy_; }
  // How often each has been started again, by its present name.
  std::map<std::string, uint32_t> Restarts() const;

 private:
  struct Child {
    // "server-0": as first started.
    std::string key;
    std::unique_ptr<ChildProcess> process;
    MonotonicTime started;
    std::optional<MonotonicTime> start_again_at = std::nullopt;
    // TakeEnded has returned it.
    bool taken = false;
    // It has the scheduler's name for it, which it keeps from incarnation to incarnation.
    bool named = false;
  };

  absl::Status Start(const std::string& process, const std::string& program,
                     std::vector<std::string> arguments, std::vector<std::string> environment = {});
  absl::Status StartServer();
  absl::Status StartWorker();
  // Those of this cluster that run or will again, and others that the scheduler knows, but none
  // that is on its way out.
  uint32_t CountStaying(const GetStatusResponse& status, Role role);
  Child& Find(const ChildProcess& process);

  const Programs programs_;
  const OutFolder& out_;
  const uint32_t servers_;
  const uint32_t workers_;
  RestartPolicy restart_policy_;
  const std::vector<std::string> devices_;
  const std::vector<std::string> worker_flags_;
  std::string scheduler_address_;
  // The numbers of the next ones.
  uint32_t next_server_ = 0;
  uint32_t next_worker_ = 0;
  // The scheduler first.
  std::vector<Child> children_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_CLUSTER_H_
