// A whole cluster of real processes for a test.
#ifndef PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_
#define PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_

#include <signal.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/child_process.h"
#include "nlohmann/json.hpp"
#include "proto/scheduler.grpc.pb.h"
#include "tests/harness/byte_proxy.h"
#include "tests/harness/loop_disk.h"
#include "tests/harness/network_namespaces.h"
#include "tests/harness/peer_names.h"

namespace pawl {

struct ProcessClusterOptions {
  // The text of the job file.
  std::string job;
  uint32_t servers = 1;
  // 0: the workers are the test's own (clients in its process), or there are none.
  uint32_t workers = 0;
  // What the scheduler is told to wait for, where that is not `workers`.
  std::optional<uint32_t> expected_workers;
  // More flags for one process, by its name: "scheduler", "server-0", "worker-1".
  std::map<std::string, std::vector<std::string>> flags;
  // The same for the environment: "NAME=value".
  std::map<std::string, std::vector<std::string>> environment;
  // If set, added to the job.
  std::optional<uint32_t> replicas;
  // After so long a silence a node is dead. On a machine that runs other tests too a process may
  // stand still for seconds: only where a death is to be noticed is it short.
  std::chrono::milliseconds lease = std::chrono::seconds(20);
  // Scheduler and servers listen where they listened before when they are restarted. A scheduler
  // that is to be restarted needs it.
  bool fixed_ports = false;
  // Scheduler and servers are reached through a ByteProxy each (which needs fixed ports); its peers
  // have the names of the processes that connect, this process has the name "test".
  bool proxies = false;
  // If set, each process is a host of its own there, and this process is "test". Outlives the
  // cluster. Not with proxies or fixed_ports (they are fixed).
  NetworkNamespaces* network = nullptr;
  // If not 0, each server's folder is a LoopDisk of so many bytes; LoopDisk::EnterPrivateMounts has
  // succeeded.
  uint64_t server_disk_bytes = 0;
  // Which programs to run, from the workspace's root; they must be among the target's data.
  // //tests/chaos has the ones with failpoints.
  std::string scheduler_program = "scheduler/pawl-scheduler";
  std::string server_program = "server/pawl-server";
  // How long the processes may take to be there.
  MonotonicDuration start_timeout = std::chrono::seconds(20);
};

// Starts a scheduler, then the servers, then the workers, one after the other, each
// as soon as the one before is registered: so "server-0" here is what the
// scheduler calls server-0. All listen on 127.0.0.1 at ports of the system's choice, or at fixed
// ones. Logs, job file and the processes' data folders (NAME/) lie in folder(), which outlives the
// cluster; the log of a process is NAME.log, those of its former incarnations are NAME.1.log and so
// on. What still runs at the end is killed; the processes also die with this one.
//
// For the main thread (see ChildProcess).
class ProcessCluster {
 public:
  // On failure the error has the ends of the logs.
  static absl::StatusOr<std::unique_ptr<ProcessCluster>> Start(ProcessClusterOptions options);

  ProcessCluster(const ProcessCluster&) = delete;
  ProcessCluster& operator=(const ProcessCluster&) = delete;

  const std::string& folder() const { return folder_; }
  // Where nodes reach the scheduler; behind its proxy if it has one. scheduler() goes past the
  // proxy.
  const std::string& scheduler_address() const { return scheduler_address_; }
  Scheduler::Stub& scheduler() { return *stub_; }

  // REQUIRES: there is such a process.
  ChildProcess& node(const std::string& name);
  // Of all processes, the scheduler first.
  std::vector<std::string> names() const;
  // The address of a server, from the scheduler's status.
  absl::StatusOr<std::string> AddressOf(const std::string& server);

  // Starts one more process with the scheduler's address and these flags; returns when it is
  // registered.
  absl::Status AddServer(const std::vector<std::string>& flags = {});
  absl::Status AddWorker(const std::vector<std::string>& flags = {});

  // Starts a program that is no node of the scheduler's keeping, such as a sender, and does not
  // wait for it.
  absl::Status AddProcess(const std::string& name, const std::string& program,
                          const std::vector<std::string>& arguments);

  // As by kill -9; returns when it has ended. Nothing if it has ended already.
  absl::Status Kill(const std::string& name);
  // SIGSTOP and SIGCONT: the process stands still with its connections open; once Pause has
  // returned, all of its threads do.
  void Pause(const std::string& name);
  void Continue(const std::string& name) { node(name).Signal(SIGCONT); }
  // Starts a process that has ended once more, with the same command, data folder and, if they are
  // fixed, port; its environment is replaced by `environment`, and `flags` are added for this
  // incarnation alone. Does not wait until it has registered.
  absl::Status Restart(const std::string& name, const std::vector<std::string>& environment = {},
                       const std::vector<std::string>& flags = {});
  // Waits until a server or worker is registered in its present incarnation, under whatever name;
  // returns that name.
  absl::StatusOr<std::string> WaitUntilMember(const std::string& name, MonotonicDuration timeout);
  // Removes all files of a process that has ended, as if its disk were lost and it got another one.
  absl::Status ReplaceDisk(const std::string& name);
  // The disk of a server. REQUIRES: ProcessClusterOptions::server_disk_bytes, and there is such a
  // server.
  LoopDisk& disk(const std::string& server) { return *disks_.at(server); }
  // What stands before "scheduler" or a server. REQUIRES: ProcessClusterOptions::proxies, and there
  // is such a process.
  ByteProxy& proxy(const std::string& name);

  absl::StatusOr<GetStatusResponse> GetStatus();
  // The first status that `holds`; DEADLINE_EXCEEDED with the last one otherwise, at once if the
  // scheduler has ended.
  absl::StatusOr<GetStatusResponse> WaitFor(
      const std::function<bool(const GetStatusResponse&)>& holds, MonotonicDuration timeout);
  // OK when every process has ended; DEADLINE_EXCEEDED naming those that have not.
  absl::Status WaitUntilAllEnded(MonotonicDuration timeout);
  // The same, and each must have exited with 0: else the error says how each ended, with the ends
  // of the logs.
  absl::Status WaitForSuccess(MonotonicDuration timeout);

  // The scheduler's metrics.json, which is there when it has ended.
  absl::StatusOr<nlohmann::json> Metrics(const std::string& name = "scheduler") const;
  // How each ended and the end of each log, for messages.
  std::string Describe();
  // All of one process's log.
  std::string Log(const std::string& name) const;

 private:
  struct Process {
    std::string name;
    std::string program;
    std::vector<std::string> arguments;
    std::unique_ptr<ChildProcess> child;
    uint32_t former_incarnations = 0;
  };

  ProcessCluster() = default;

  absl::Status StartAll(const ProcessClusterOptions& options);
  absl::Status Spawn(const std::string& name, const std::string& program,
                     std::vector<std::string> arguments);
  absl::Status StartIncarnation(Process& process, const std::vector<std::string>& environment,
                                const std::vector<std::string>& flags = {});
  // --listen and, with a proxy, --advertise.
  absl::StatusOr<std::vector<std::string>> ListenFlags(const std::string& name);
  Process& process(const std::string& name);
  absl::Status WaitUntilRegistered(const std::string& name);
  absl::Status AddNode(const std::string& name, const std::string& program,
                       std::vector<std::string> arguments);

  ProcessClusterOptions options_;
  PeerNames peer_names_;
  // By process. Before processes_: proxies are the last to go.
  std::map<std::string, std::unique_ptr<ByteProxy>> proxies_;
  // By server.
  std::map<std::string, std::unique_ptr<LoopDisk>> disks_;
  // Where processes with fixed ports listen.
  std::map<std::string, std::string> direct_addresses_;
  std::string folder_;
  std::string scheduler_address_;
  std::unique_ptr<Scheduler::Stub> stub_;
  std::vector<Process> processes_;
  uint32_t servers_ = 0;
  uint32_t workers_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_
