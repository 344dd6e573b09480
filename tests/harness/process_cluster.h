// A cluster of real processes for a test.
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
#include "client_lib/security/security.h"
#include "nlohmann/json.hpp"
#include "proto/scheduler.grpc.pb.h"
#include "tests/harness/byte_proxy.h"
#include "tests/harness/loop_disk.h"
#include "tests/harness/network_namespaces.h"
#include "tests/harness/peer_names.h"

namespace pawl {

struct ProcessClusterOptions {
  // The content of the job file.
  std::string job;
  uint32_t servers = 1;
  // 0: the test runs clients in its own process, or there are no workers.
  uint32_t workers = 0;
  // The number of workers that the scheduler waits for, if it differs from `workers`.
  std::optional<uint32_t> expected_workers;
  // Additional flags by process name: "scheduler", "server-0", "worker-1".
  std::map<std::string, std::vector<std::string>> flags;
  // Additional environment by process name: "NAME=value".
  std::map<std::string, std::vector<std::string>> environment;
  // If set, added to the job.
  std::optional<uint32_t> replicas;
  // The scheduler declares a node dead after this much silence. It is long because a process may
  // stall for seconds on a machine that runs other tests. Tests of failure detection shorten it.
  std::chrono::milliseconds lease = std::chrono::seconds(20);
  // Scheduler and servers keep their port when they restart. Required to restart the scheduler.
  bool fixed_ports = false;
  // Puts a ByteProxy in front of the scheduler and each server; requires fixed_ports. Peers are
  // named after the connecting process; this process is "test".
  bool proxies = false;
  // If set, each process runs on a host of its own there, and this process is "test". Must outlive
  // the cluster. Excludes proxies and fixed_ports (ports are fixed anyway).
  NetworkNamespaces* network = nullptr;
  // All processes use TLS. folder()/tls/ROLE is the --tls_dir of a process with that role.
  bool tls = false;
  // With `tls`: scheduler and servers accept tokens of this key, and
  // folder()/tls/operator/tokens has it. Empty: they accept none.
  std::string token_key;
  // If not 0, each server's folder is a LoopDisk of this size. REQUIRES:
  // LoopDisk::EnterPrivateMounts has succeeded.
  uint64_t server_disk_bytes = 0;
  // The programs to run, relative to the workspace's root. They must be among the target's data.
  // //tests/chaos has programs with failpoints.
  std::string scheduler_program = "scheduler/pawl-scheduler";
  std::string server_program = "server/pawl-server";
  // The deadline for each process to register.
  MonotonicDuration start_timeout = std::chrono::seconds(20);
};

// Starts a scheduler, then the servers, then the workers. Each process starts when its predecessor
// has registered, so "server-0" here is the scheduler's server-0. All listen on 127.0.0.1, at ports
// chosen by the system or at fixed ones. folder() holds logs, the job file and the processes' data
// folders (NAME/), and outlives the cluster. A process logs to NAME.log; the logs of its previous
// incarnations are NAME.1.log and so on. The destructor kills running processes; they also die with
// this process.
//
// Use it on the main thread (see ChildProcess).
class ProcessCluster {
 public:
  // An error includes the ends of the logs.
  static absl::StatusOr<std::unique_ptr<ProcessCluster>> Start(ProcessClusterOptions options);

  ProcessCluster(const ProcessCluster&) = delete;
  ProcessCluster& operator=(const ProcessCluster&) = delete;

  const std::string& folder() const { return folder_; }
  // The --tls_dir of a process with that role. REQUIRES: ProcessClusterOptions::tls is set.
  std::string tls_dir(const std::string& role) const { return folder_ + "/tls/" + role; }
  // For connections of the test itself, as an operator.
  const Security& security() const { return *security_; }
  // The address at which nodes reach the scheduler, behind its proxy if it has one. scheduler()
  // bypasses the proxy.
  const std::string& scheduler_address() const { return scheduler_address_; }
  Scheduler::Stub& scheduler() { return *stub_; }

  // REQUIRES: the process exists.
  ChildProcess& node(const std::string& name);
  // The names of all processes, the scheduler's first.
  std::vector<std::string> names() const;
  // The address of a server according to the scheduler.
  absl::StatusOr<std::string> AddressOf(const std::string& server);

  // Starts one more process with the scheduler's address and these flags. Returns when it has
  // registered.
  absl::Status AddServer(const std::vector<std::string>& flags = {});
  absl::Status AddWorker(const std::vector<std::string>& flags = {});

  // Starts a program that does not register, such as a sender, and returns at once.
  absl::Status AddProcess(const std::string& name, const std::string& program,
                          const std::vector<std::string>& arguments);

  // Kills a process as kill -9 does and waits for its end. Does nothing if it has ended.
  absl::Status Kill(const std::string& name);
  // SIGSTOP and SIGCONT. A paused process keeps its connections open; all its threads have stopped
  // when Pause returns.
  void Pause(const std::string& name);
  void Continue(const std::string& name) { node(name).Signal(SIGCONT); }
  // Restarts a process that has ended, with the same command, data folder and, if fixed, port.
  // `environment` replaces the environment; `flags` are added for this incarnation only. Does not
  // wait for the registration.
  absl::Status Restart(const std::string& name, const std::vector<std::string>& environment = {},
                       const std::vector<std::string>& flags = {});
  // Waits until the present incarnation of a server or worker has registered, and returns the
  // scheduler's name for it.
  absl::StatusOr<std::string> WaitUntilMember(const std::string& name, MonotonicDuration timeout);
  // Removes all files of an ended process, as if its disk were lost and replaced.
  absl::Status ReplaceDisk(const std::string& name);
  // Flips a bit of an ended server's log, and deletes what it set aside of an earlier damage.
  absl::Status DamageLog(const std::string& name);
  // The disk of a server. REQUIRES: the server exists, and ProcessClusterOptions::server_disk_bytes
  // is set.
  LoopDisk& disk(const std::string& server) { return *disks_.at(server); }
  // The proxy in front of "scheduler" or a server. REQUIRES: the process exists, and
  // ProcessClusterOptions::proxies is set.
  ByteProxy& proxy(const std::string& name);

  absl::StatusOr<GetStatusResponse> GetStatus();
  // Returns the first status that `holds`. DEADLINE_EXCEEDED with the last status otherwise, at
  // once if the scheduler ends.
  absl::StatusOr<GetStatusResponse> WaitFor(
      const std::function<bool(const GetStatusResponse&)>& holds, MonotonicDuration timeout);
  // OK when every process has ended; DEADLINE_EXCEEDED with the names of the others.
  absl::Status WaitUntilAllEnded(MonotonicDuration timeout);
  // Also requires that each exited with 0. Otherwise the error describes all exits and the ends of
  // the logs.
  absl::Status WaitForSuccess(MonotonicDuration timeout);

  // The scheduler's metrics.json, which it writes when it ends.
  absl::StatusOr<nlohmann::json> Metrics(const std::string& name = "scheduler") const;
  // The state of each process and the end of its log, for messages.
  std::string Describe();
  // The complete log of one process.
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
  absl::Status StartIncarnation(Process& process, std::vector<std::string> environment,
                                const std::vector<std::string>& flags = {});
  // --listen and, with a proxy, --advertise.
  absl::StatusOr<std::vector<std::string>> ListenFlags(const std::string& name);
  Process& process(const std::string& name);
  absl::Status WaitUntilRegistered(const std::string& name);
  absl::Status AddNode(const std::string& name, const std::string& program,
                       std::vector<std::string> arguments);

  ProcessClusterOptions options_;
  PeerNames peer_names_;
  // By process. Declared before processes_, so that proxies are destroyed last.
  std::map<std::string, std::unique_ptr<ByteProxy>> proxies_;
  // By server.
  std::map<std::string, std::unique_ptr<LoopDisk>> disks_;
  // The addresses of processes with fixed ports.
  std::map<std::string, std::string> direct_addresses_;
  std::string folder_;
  std::string scheduler_address_;
  std::unique_ptr<Security> security_;
  std::unique_ptr<Scheduler::Stub> stub_;
  std::vector<Process> processes_;
  uint32_t servers_ = 0;
  uint32_t workers_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_
