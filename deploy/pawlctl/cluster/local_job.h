// The job and the cluster of `pawlctl run`, checked before any process starts.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_JOB_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace pawl {

struct RunOptions {
  std::string job;
  uint32_t servers = 1;
  // -1: 1, or 0 for a job that only serves tables.
  int32_t workers = -1;
  // Each "cpu" or "cuda:N". The workers get them in turn, a `worker_program` by the environment's
  // PAWL_DEVICE. Empty: the CPU.
  std::vector<std::string> devices = {"cpu"};
  // pawl-worker's --collectives; empty: its default.
  std::string collectives;
  // pawl-worker's --cuda_graphs.
  bool cuda_graphs = false;
  // pawl-worker's --index_dir.
  std::string index_dir;
  // pawl-worker's --straggler; empty: none.
  std::string straggler;
  // 0: the job file's value, or 1.
  uint32_t replicas = 0;
  // A pawl.Durability; empty: the job file's value, or LOG.
  std::string durability;
  // The limit on restarts of processes that die, for all processes together.
  uint32_t max_restarts = 10;
  // "path=value", applied to the job in this order. Relative file names are relative to the current
  // folder.
  std::vector<std::string> set;
  // Empty: out/NAME in the current folder, NAME being the job's.
  std::string out;
  // All connections use TLS, with certificates made for this run.
  bool tls = false;
  // The program that runs as a worker instead of pawl-worker, found as a shell finds it, and its
  // arguments. It joins the job by the environment's PAWL_SCHEDULER. Empty: pawl-worker.
  std::vector<std::string> worker_program;
  // End the run as SIGTERM does when stdin reaches its end: when the process that started this one
  // has died.
  bool until_stdin_ends = false;
  // A checkpoint's folder, or a folder of checkpoints, to start from; empty: none.
  std::string restore;
  // Print errors only.
  bool is_quiet = false;
};

struct LocalJob {
  Job job;
  uint32_t workers = 0;
  // For each worker.
  std::vector<std::string> worker_flags;
  // RunOptions::worker_program, as a path. Empty: pawl-worker.
  std::string worker_program;
};

// Whether the processes that the options name are possible on one machine. INVALID_ARGUMENT names
// the flag.
absl::Status CheckProcesses(const RunOptions& options);
// The same for `workers` of them.
absl::Status CheckWorkers(int32_t workers);
// The same for RunOptions::devices.
absl::Status CheckDevices(const std::vector<std::string>& devices);
// pawl-worker's flags for the options.
std::vector<std::string> WorkerFlags(const RunOptions& options);

// Reads the job file, applies the options and checks everything. INVALID_ARGUMENT or another error
// names the flag or the field.
absl::StatusOr<LocalJob> PrepareJob(const RunOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_JOB_H_
