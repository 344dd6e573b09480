// A whole cluster of real processes for a test.
#ifndef PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_
#define PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_

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
#include "deploy/pawlctl/child_process.h"
#include "nlohmann/json.hpp"
#include "proto/scheduler.grpc.pb.h"

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
  // How long the processes may take to be there.
  MonotonicDuration start_timeout = std::chrono::seconds(20);
};

// Starts a scheduler, then the servers, then the workers, one after the other, each
// as soon as the one before is registered: so "server-0" here is what the
// scheduler calls server-0. All listen on 127.0.0.1 at ports of the system's choice. Logs,
// job file and the scheduler's files lie in folder(), which outlives the cluster.
// What still runs at the end is killed; the processes also die with this one.
//
// For the main thread (see ChildProcess).
class ProcessCluster {
 public:
  // On failure the error has the ends of the logs.
  static absl::StatusOr<std::unique_ptr<ProcessCluster>> Start(ProcessClusterOptions options);

  ProcessCluster(const ProcessCluster&) = delete;
  ProcessCluster& operator=(const ProcessCluster&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& scheduler_address() const { return scheduler_address_; }
  Scheduler::Stub& scheduler() { return *stub_; }

  // REQUIRES: there is such a process.
  ChildProcess& node(const std::string& name);
  // Of all processes, the scheduler first.
  std::vector<std::string> names() const;
  // The address of a server, from the scheduler's status.
  absl::StatusOr<std::string> AddressOf(const std::string& server);

  // Starts one more process with the scheduler's address and these flags; returns when it is registered.
  absl::Status AddServer(const std::vector<std::string>& flags = {});
  absl::Status AddWorker(const std::vector<std::string>& flags = {});

  absl::StatusOr<GetStatusResponse> GetStatus();
  // The first status that `holds`; DEADLINE_EXCEEDED with the last one otherwise, at once if the scheduler has ended.
  absl::StatusOr<GetStatusResponse> WaitFor(const std::function<bool(const GetStatusResponse&)>& holds,
                                            MonotonicDuration timeout);
  // OK when every process has ended; DEADLINE_EXCEEDED naming those that have not.
  absl::Status WaitUntilAllEnded(MonotonicDuration timeout);
  // The same, and each must have exited with 0: else the error says how each ended, with the ends of the logs.
  absl::Status WaitForSuccess(MonotonicDuration timeout);

  // The scheduler's metrics.json, which is there when it has ended.
  absl::StatusOr<nlohmann::json> Metrics() const;
  // How each ended and the end of each log, for messages.
  std::string Describe();
  // All of one process's log.
  std::string Log(const std::string& name) const;

 private:
  struct Process {
    std::string name;
    std::unique_ptr<ChildProcess> child;
  };

  ProcessCluster() = default;

  absl::Status StartAll(const ProcessClusterOptions& options);
  absl::Status Spawn(const std::string& name, const std::string& program, std::vector<std::string> arguments);
  absl::Status WaitUntilRegistered(const std::string& name);
  absl::Status AddNode(const std::string& name, const std::string& program, std::vector<std::string> arguments);
  MonotonicDuration start_timeout_ = {};

  std::string folder_;
  std::string scheduler_address_;
  std::unique_ptr<Scheduler::Stub> stub_;
  std::vector<Process> processes_;
  uint32_t servers_ = 0;
  uint32_t workers_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_PROCESS_CLUSTER_H_
