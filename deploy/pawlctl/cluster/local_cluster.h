// A scheduler, servers and workers as processes on this machine.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_CLUSTER_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_CLUSTER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/child_process.h"
#include "deploy/pawlctl/cluster/child_group.h"
#include "deploy/pawlctl/cluster/daemon_commands.h"
#include "deploy/pawlctl/cluster/out_folder.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// The limit on nodes of one role. More would only compete for the processors of the machine.
inline constexpr uint32_t kMaxLocalNodes = 64;

// Looks in `bin_folder` (the environment's PAWL_BIN_DIR) if it is not empty; otherwise beside
// `own_program`, and then in Bazel's output relative to it. NOT_FOUND: the message says where they
// were expected and how to build them.
absl::StatusOr<Programs> FindPrograms(const std::string& own_program,
                                      const std::string& bin_folder);

// The same for this process, with the environment's PAWL_BIN_DIR.
absl::StatusOr<Programs> FindOwnPrograms();

// Makes certificates for all roles in the folder, for the job of that name. Errors are the
// program's.
absl::Status MakeCertificates(const Programs& programs, const OutFolder& out,
                              const std::string& job);

// Makes the indexes of the training data of the job in the folder, which streams it, where they are
// missing or outdated. Returns the data's identity. Errors are pawl-worker's.
absl::StatusOr<std::string> MakeDataIndex(const Programs& programs, const OutFolder& out,
                                          const std::string& index_dir);

// The processes of one run. Kills them on destruction. Used by the main thread only (see
// ChildProcess).
class LocalCluster {
 public:
  // REQUIRES: `out` outlives this. `devices`: see RunOptions. Each worker gets `worker_flags`.
  // `tls`: MakeCertificates has succeeded, and each process gets its role's certificate.
  LocalCluster(Programs programs, const OutFolder& out, uint32_t servers, uint32_t workers,
               uint32_t max_restarts, std::vector<std::string> devices = {},
               std::vector<std::string> worker_flags = {}, bool tls = false);

  // Starts the scheduler with the folder's job file, at a free port that it keeps when it is
  // restarted.
  absl::Status StartScheduler(const std::vector<std::string>& more_flags = {});
  // The address at which the scheduler listens; empty if it does not yet.
  std::string SchedulerAddress() const;
  // Starts the servers and workers. After a failure those already started continue.
  absl::Status StartNodes(const std::string& scheduler_address);
  // Starts the nodes that are missing after the job was scaled. After a failure those already
  // started continue.
  absl::Status StartMissing(const GetStatusResponse& status);

  // Gives each process and its log the node name that the scheduler assigned when the node
  // registered.
  void NameNodes(const GetStatusResponse& status);
  // Whether every process has such a name.
  bool AllAreNamed() const { return named_.size() == group_.children().size(); }

  // The processes.
  ChildGroup& group() { return group_; }
  const ChildGroup& group() const { return group_; }
  // REQUIRES: StartScheduler succeeded.
  ChildProcess& scheduler() { return *group_.children().front().process; }
  // Whether the process has registered, in this incarnation or an earlier one.
  bool WasRegistered(const ChildProcess& child);
  // Whether a worker runs, or will be restarted.
  bool HasWorker();

 private:
  // Sets the log.
  absl::Status Start(ChildOptions command);
  DaemonPlace Place(const std::string& process, const std::string& role) const;
  absl::Status StartServer();
  absl::Status StartWorker();
  // Counts the nodes of a role that are not leaving: processes of this cluster that run or will be
  // restarted, and other nodes that the scheduler knows.
  uint32_t CountStaying(const GetStatusResponse& status, Role role);

  const Programs programs_;
  const OutFolder& out_;
  const uint32_t servers_;
  const uint32_t workers_;
  const std::vector<std::string> devices_;
  const std::vector<std::string> worker_flags_;
  const bool tls_;
  std::string scheduler_address_;
  // The numbers of the next processes.
  uint32_t next_server_ = 0;
  uint32_t next_worker_ = 0;
  // The first is the scheduler.
  ChildGroup group_;
  // Keys of those that have the name that the scheduler assigned. Later incarnations keep it.
  std::set<std::string> named_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_CLUSTER_H_
